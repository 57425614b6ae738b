#pragma once

#include "runtime/simd/column_sum.h"
#include "runtime/simd/outer_pairs.h"

namespace weft::runtime {
namespace {

/// A vector of bf16 as f32.
[[gnu::always_inline]] inline Vector<float> widened(const uint16_t* p) {
  using Halves __attribute__((vector_size(kVectorBytes / 2))) = uint16_t;
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof(halves));
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(halves, PairVector) << 16);
}

/// sum[c] += a[0][c] + ... + a[R-1][c], one row after another.
template <int R>
[[gnu::always_inline]] inline void add_half_rows(const uint16_t* a, int64_t lda, int64_t columns, float* sum) {
  constexpr int64_t kLanes = Simd<float>::kLanes;
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    Vector<float> total = load(sum + c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) total += widened(a + r * lda + c);
    store(sum + c, total);
  }
  for (; c < columns; ++c)
    for (int r = 0; r < R; ++r) {
      const uint32_t bits = uint32_t{a[r * lda + c]} << 16;
      float number;
      __builtin_memcpy(&number, &bits, sizeof(number));
      sum[c] += number;
    }
}

/// ColumnSumKernel of bf16. Sums are f32, over the same rows as column_sum's, and rounded once.
inline void half_column_sum(const void* a_data, int64_t rows, int64_t lda, void* out_data, int64_t c0, int64_t c1) {
  alignas(64) float partial[kSumColumns], total[kSumColumns];
  auto* out = static_cast<uint16_t*>(out_data);
  for (int64_t c = c0; c < c1; c += kSumColumns) {
    const int64_t columns = smaller(kSumColumns, c1 - c);
    for (int64_t j = 0; j < columns; ++j) total[j] = 0;
    for (int64_t r0 = 0; r0 < rows; r0 += kSumRows) {
      const uint16_t* a = static_cast<const uint16_t*>(a_data) + r0 * lda + c;
      const int64_t count = smaller(kSumRows, rows - r0);
      for (int64_t j = 0; j < columns; ++j) partial[j] = 0;
      int64_t r = 0;
      for (; r + 8 <= count; r += 8) add_half_rows<8>(a + r * lda, lda, columns, partial);
      for (; r < count; ++r) add_half_rows<1>(a + r * lda, lda, columns, partial);
      for (int64_t j = 0; j < columns; ++j) total[j] += partial[j];
    }
    round_row(total, columns, out + c);
  }
}

}  // namespace
}  // namespace weft::runtime
