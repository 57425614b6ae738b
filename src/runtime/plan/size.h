#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace weft::runtime {

/// A field of a struct of plain data, by name. Plans are printed, read and compared by their fields. The functions
/// fields() are templates because such tuples take long to compile: those who call none don't pay for them.
template <typename Struct, typename Type>
struct Field {
  const char* name;
  Type Struct::* member;
};
template <typename Struct, typename Type>
Field(const char*, Type Struct::*) -> Field<Struct, Type>;

/// A size: a factor times values of a call, by their index: Plan::symbols, then Plan::derived.
struct DimExpr {
  int64_t factor = 1;
  std::vector<int64_t> symbols;

  /// The size for these values. User's error if it exceeds 2^63.
  int64_t evaluate(const std::vector<int64_t>& values) const;
  bool operator==(const DimExpr&) const = default;
};

/// A value that a call computes from those before it: the sum of the terms, divided by the divisor and rounded down.
struct DerivedSize {
  std::vector<DimExpr> terms;
  int64_t divisor = 1;

  bool operator==(const DerivedSize&) const = default;
  template <typename Self = DerivedSize>
  static constexpr auto fields() {
    return std::tuple{Field{"terms", &Self::terms}, Field{"divisor", &Self::divisor}};
  }
};

/// A size that must not be negative at a call.
struct SizeCheck {
  std::string name;
  DimExpr size;

  bool operator==(const SizeCheck&) const = default;
  template <typename Self = SizeCheck>
  static constexpr auto fields() {
    return std::tuple{Field{"name", &Self::name}, Field{"size", &Self::size}};
  }
};

/// The sum of the terms as a cost, for comparisons only: at most 2^63 - 1, even where it overflows.
int64_t estimate(const std::vector<DimExpr>& terms, const std::vector<int64_t>& values);

}  // namespace weft::runtime
