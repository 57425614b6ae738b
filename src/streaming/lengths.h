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

/// What says how long a sequence is: the symbol of a program's inputs.
class Lengths {
 public:
  /// `symbol`: of the steps; empty where no input has any.
  explicit Lengths(std::string symbol) : symbol_(std::move(symbol)) {}

  const std::string& symbol() const { return symbol_; }
  bool mentions(const ir::Dim& dim) const { return !symbol_.empty() && dim.mentions(symbol_); }
  bool mentions(const ir::Type& type) const;
  /// How many dims of the type mention it.
  int64_t count(const ir::Type& type) const;

  /// None where the size is no linear function of the length, but for rounding.
  std::optional<Rate> rate(const ir::Dim& dim) const;
  /// How many times `length` the size is; none if that is no whole number for all lengths.
  std::optional<int64_t> multiple(const ir::Dim& dim, const ir::Dim& length) const;
  /// The type for sequences of which `length` is `elements`: each dim that is a multiple of it becomes that multiple.
  /// User's error where a dim is none.
  ir::Type sized(const ir::Type& type, const ir::Dim& length, int64_t elements) const;
  /// The size where the sequence has so many steps.
  int64_t at(const ir::Dim& dim, int64_t steps) const;

 private:
  std::string symbol_;
};

/// The least number of steps in which every size of the program grows by a whole number of elements. User's error for
/// a size that isn't linear in the length.
int64_t steps_of_chunk(const ir::Program& program, const Lengths& lengths);

}  // namespace weft::streaming
