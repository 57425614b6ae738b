#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/program.h"

namespace weft::streaming {

/// How much a size grows with each step of the sequence: 1 for `T+4`, 1/2 for `(T+1)//2`, 2 for `2*T`.
struct Rate {
  int64_t elements = 0;
  int64_t steps = 1;
  bool operator==(const Rate&) const = default;
};

/// The length of the sequence: the symbol of the inputs' time dims.
class Lengths {
 public:
  /// `symbol`: of the steps; empty where no input has any.
  explicit Lengths(std::string symbol) : symbol_(std::move(symbol)) {}

  const std::string& symbol() const { return symbol_; }
  bool mentions(const ir::Dim& dim) const { return !symbol_.empty() && dim.mentions(symbol_); }
  bool mentions(const ir::Type& type) const;
  /// The number of dims of the type that mention the symbol.
  int64_t count(const ir::Type& type) const;

  /// The size's rate; none if the size is no linear function of the length, up to rounding.
  std::optional<Rate> rate(const ir::Dim& dim) const;
  /// The size divided by `length`; none if that isn't the same integer for all lengths.
  std::optional<int64_t> multiple(const ir::Dim& dim, const ir::Dim& length) const;
  /// The type for `elements` elements of time: each dim that mentions the symbol is a multiple of `length`, and becomes
  /// that multiple of `elements`. User's error where a dim is no multiple.
  ir::Type sized(const ir::Type& type, const ir::Dim& length, int64_t elements) const;
  /// The size for a sequence of `steps` steps.
  int64_t at(const ir::Dim& dim, int64_t steps) const;

 private:
  std::string symbol_;
};

/// The least number of steps in which every size of the program grows by a whole number of elements. User's error for
/// a size that isn't linear in the length.
int64_t steps_of_chunk(const ir::Program& program, const Lengths& lengths);

}  // namespace weft::streaming
