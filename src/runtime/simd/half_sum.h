#pragma once

#include "runtime/simd/column_sum.h"
#include "runtime/simd/outer_pairs.h"

namespace weft::runtime {
namespace {

/// ColumnSumKernel of bf16. Sums are f32, over the same rows as column_sum's, and rounded once.
inline void half_column_sum(const void* a_data, int64_t rows, int64_t lda, void* out_data, int64_t c0, int64_t c1) {
  alignas(64) float total[kSumColumns];
  const auto* a = static_cast<const uint16_t*>(a_data);
  auto* out = static_cast<uint16_t*>(out_data);
  for (int64_t c = c0; c < c1; c += kSumColumns) {
    const int64_t columns = smaller(kSumColumns, c1 - c);
    sum_columns(a + c, rows, lda, columns, total);
    round_row(total, columns, out + c);
  }
}

}  // namespace
}  // namespace weft::runtime
