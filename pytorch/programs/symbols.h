#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "programs/sample_sizes.h"
#include "record/size_fit.h"

namespace weft::programs {

/// Identifies a size that may be a symbol. Sizes with equal keys are one symbol.
struct SizeKey {
  std::optional<int64_t> at_hand;  ///< none: known only at run time
  std::string name = {};           ///< an outer trace's symbol; or what tells the size from one that is equal at hand

  bool operator==(const SizeKey&) const = default;
};

/// Which sizes are symbols in an attempt at a program for all sizes, and the symbols' values in its runs.
class Symbols {
 public:
  static constexpr size_t kAtHand = 2;  ///< the run with the sizes at hand

  Symbols() = default;
  /// `guesses`: sizes may be sums and divisions of symbols.
  Symbols(std::vector<SizeKey> keys, SampleSizes samples, bool guesses)
      : keys_(std::move(keys)), samples_(std::move(samples)), guesses_(guesses) {}

  /// The first kMostSymbols keys, with small_samples().
  static Symbols small(std::vector<SizeKey> keys, bool guesses);
  /// The first kMostSymbols keys, with larger_samples(): for functions that make sizes smaller.
  static Symbols larger(std::vector<SizeKey> keys, bool guesses);

  /// Adds a symbol whose values in the runs are known.
  void add(SizeKey key, std::pair<int64_t, int64_t> sample);

  bool empty() const { return keys_.empty(); }
  const std::vector<SizeKey>& keys() const { return keys_; }
  const SampleSizes& samples() const { return samples_; }
  std::optional<size_t> find(const SizeKey& key) const;
  /// The symbol's value in a run; none where only the run time knows it.
  std::optional<int64_t> value(size_t symbol, size_t run) const;

  /// The runs to make: two at other sizes, which suggest expressions, and kAtHand if the sizes at hand are known, which
  /// must confirm the expressions. Without symbols, one run.
  std::vector<size_t> runs() const;
  record::SizeFit fit() const;

 private:
  std::vector<SizeKey> keys_;
  SampleSizes samples_;
  bool guesses_ = false;
};

}  // namespace weft::programs
