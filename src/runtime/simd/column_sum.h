#pragma once

#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// Rows in a partial sum, which is then added to the result: bounds the rounding error of long sums.
constexpr int64_t kSumRows = 256;
/// Columns summed at a time: partial sums stay in the first-level cache, and rows are read in long runs.
constexpr int64_t kSumColumns = 1024;

/// sum[c] += a[0][c] + ... + a[R-1][c], one row after another.
template <typename T, int R>
[[gnu::always_inline]] inline void add_rows(const T* a, int64_t lda, int64_t columns, T* sum) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    Vector<T> total = load(sum + c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) total += load(a + r * lda + c);
    store(sum + c, total);
  }
  for (; c < columns; ++c)
    for (int r = 0; r < R; ++r) sum[c] += a[r * lda + c];
}

template <typename T>
void column_sum(const void* a_data, int64_t rows, int64_t lda, void* out_data, int64_t c0, int64_t c1) {
  alignas(64) T partial[kSumColumns];
  T* out = static_cast<T*>(out_data);
  for (int64_t c = c0; c < c1; c += kSumColumns) {
    const int64_t columns = smaller(kSumColumns, c1 - c);
    for (int64_t j = 0; j < columns; ++j) out[c + j] = T(0);
    for (int64_t r0 = 0; r0 < rows; r0 += kSumRows) {
      const T* a = static_cast<const T*>(a_data) + r0 * lda + c;
      const int64_t count = smaller(kSumRows, rows - r0);
      for (int64_t j = 0; j < columns; ++j) partial[j] = T(0);
      int64_t r = 0;
      for (; r + 8 <= count; r += 8) add_rows<T, 8>(a + r * lda, lda, columns, partial);
      for (; r < count; ++r) add_rows<T, 1>(a + r * lda, lda, columns, partial);
      for (int64_t j = 0; j < columns; ++j) out[c + j] += partial[j];
    }
  }
}

}  // namespace
}  // namespace weft::runtime
