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

  /// The size for these values of the symbols. User's error if it exceeds 2^63.
  int64_t evaluate(const std::vector<int64_t>& values) const;
  bool operator==(const DimExpr&) const = default;
};

/// The sum of the terms as a cost, which is only compared: at most 2^63 - 1, whatever overflows.
int64_t estimate(const std::vector<DimExpr>& terms, const std::vector<int64_t>& values);

}  // namespace weft::runtime
