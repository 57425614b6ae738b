#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace weft::ir {

/// A size: a number times symbols, `3`, `T`, `T*B`, `4*T*B`. Symbols stand for sizes known at the call.
/// `symbols` is sorted; factor 0 has no symbols.
struct Dim {
  int64_t factor = 1;
  std::vector<std::string> symbols;

  Dim() = default;
  Dim(int64_t number) : factor(number) {}  // NOLINT: a number is a dim
  static Dim symbol(std::string name);

  bool is_constant() const { return symbols.empty(); }
  /// One symbol, times 1.
  bool is_symbol() const { return factor == 1 && symbols.size() == 1; }
  /// The number; internal error unless is_constant().
  int64_t constant() const;
  auto operator<=>(const Dim&) const = default;
};

/// The product of two dims.
Dim operator*(const Dim& a, const Dim& b);

using Shape = std::vector<Dim>;

/// Values of symbols at a call.
using Bindings = std::map<std::string, int64_t>;

/// The value of a dim under bindings; none if it overflows 64 bits (but 0 times anything is 0). User's error naming the
/// symbol if one is unbound.
std::optional<int64_t> try_evaluate(const Dim& dim, const Bindings& bindings);

/// The same; an overflow is the user's error too.
int64_t evaluate(const Dim& dim, const Bindings& bindings);

/// The product of all dims (1 for a scalar).
Dim element_count(const Shape& shape);

/// A dense row-major tensor's type, printed `f32[T,B,16]`; a scalar is `f32[]`.
struct Type {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool operator==(const Type&) const = default;
};

std::string to_string(const Dim& dim);
std::string to_string(const Shape& shape);  ///< `[T,B,16]`
std::string to_string(const Type& type);

}  // namespace weft::ir
