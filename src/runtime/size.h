#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

namespace weft::runtime {

/// A field of a struct of plain data, by name: what a plan is printed, read and compared by.
template <typename Struct, typename Type>
struct Field {
  const char* name;
  Type Struct::* member;
};
template <typename Struct, typename Type>
Field(const char*, Type Struct::*) -> Field<Struct, Type>;

/// A size: factor times the values of symbols (indices into Plan::symbols).
struct DimExpr {
  int64_t factor = 1;
  std::vector<int64_t> symbols;

  /// User's error where it exceeds 2^63.
  int64_t evaluate(const std::vector<int64_t>& values) const;
  bool operator==(const DimExpr&) const = default;
};

/// The sum of the terms where it is only to be compared, as a cost: 2^63 - 1 stands for all that is more.
int64_t estimate(const std::vector<DimExpr>& terms, const std::vector<int64_t>& values);

}  // namespace weft::runtime
