#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/type.h"

namespace weft::record {

/// Finds sizes as expressions of symbols, from their values in runs in which each symbol has another value. Symbol i is
/// named `s<i>`.
///
/// A number times symbols is found by its prime factors. Sums and floor divisions are guesses (`s0+1`, `(s0+3)//2`,
/// `s1*(s0+1)`), simple ones first. Guesses are made only if the caller will check them against runs with further
/// sizes.
class SizeFit {
 public:
  /// `samples`: for each symbol its values in two runs, the first of them prime. `at_hand`: the values in a third run;
  /// empty if there is none.
  SizeFit(const std::vector<std::pair<int64_t, int64_t>>& samples, std::vector<int64_t> at_hand, bool guesses);

  /// The size that is `first` in the first run, `second` in the second and, if known, `third` in the third. None if
  /// there is no such expression.
  std::optional<ir::Dim> find(int64_t first, int64_t second, std::optional<int64_t> third = std::nullopt);
  /// From now on finds only sizes that were found before, and products of these. For sizes that are not checked against
  /// a further run.
  void stop_guessing() { guesses_ = false; }

  size_t count() const { return symbols_.size(); }
  bool has_third() const { return third_.size() == symbols_.size(); }
  int64_t in_first(const ir::Dim& dim) const { return ir::evaluate(dim, first_); }
  /// The dim's value in the third run, at the sizes at hand.
  int64_t at_hand(const ir::Dim& dim) const { return ir::evaluate(dim, third_); }
  const std::vector<std::string>& symbols() const { return symbols_; }  ///< names, sorted

 private:
  /// A subexpression, with its values in two runs.
  struct Known {
    ir::Dim dim;
    int64_t first, second;
  };
  struct Guess {
    ir::Dim dim;
    int64_t cost;
  };
  std::optional<ir::Dim> product(int64_t first, int64_t second) const;
  std::optional<ir::Dim> guess(int64_t first, int64_t second, std::optional<int64_t> third) const;
  void try_multiple(const Known& of, int64_t first, int64_t second, std::vector<Guess>& found) const;
  void try_quotients(const Known& of, int64_t first, int64_t second, std::vector<Guess>& found) const;
  void try_sums(int64_t first, int64_t second, std::vector<Guess>& found) const;
  bool fits_third(const ir::Dim& dim, std::optional<int64_t> third) const;

  std::vector<std::string> symbols_;
  ir::Bindings first_, second_, third_;
  bool guesses_;
  std::vector<Known> known_;  ///< the symbols, then expressions
  /// By the values of a size in two runs: the expression. None: in a third run sizes with these two values differed.
  std::map<std::pair<int64_t, int64_t>, std::optional<ir::Dim>> found_;
};

}  // namespace weft::record
