#pragma once

#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// Rows in a partial sum, which is then added to the result: bounds the rounding error of long sums.
constexpr int64_t kSumRows = 256;
/// Columns summed at a time: partial sums stay in the first-level cache, and rows are read in long runs.
constexpr int64_t kSumColumns = 1024;

// Load elements of the rows as the type that is summed: unchanged, or bf16 as f32.

template <typename T>
[[gnu::always_inline]] inline Vector<T> load_as(const T* p) {
  return load(p);
}
template <typename T>
[[gnu::always_inline]] inline Vector<T> load_as(const uint16_t* p) {
  using Halves __attribute__((vector_size(kVectorBytes / 2))) = uint16_t;
  using Wide __attribute__((vector_size(kVectorBytes))) = uint32_t;
  Halves halves;
  __builtin_memcpy(&halves, p, sizeof(halves));
  return reinterpret_cast<Vector<T>>(__builtin_convertvector(halves, Wide) << 16);
}

template <typename T>
inline T number_as(T number) {
  return number;
}
template <typename T>
inline T number_as(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  T number;
  __builtin_memcpy(&number, &bits, sizeof(number));
  return number;
}

/// sum[c] += a[0][c] + ... + a[R-1][c], one row after another.
template <typename T, int R, typename Source>
[[gnu::always_inline]] inline void add_rows(const Source* a, int64_t lda, int64_t columns, T* sum) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  int64_t c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    Vector<T> total = load(sum + c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) total += load_as<T>(a + r * lda + c);
    store(sum + c, total);
  }
  for (; c < columns; ++c)
    for (int r = 0; r < R; ++r) sum[c] += number_as<T>(a[r * lda + c]);
}

/// total[c] = the sum of column c, for at most kSumColumns of them.
template <typename T, typename Source>
void sum_columns(const Source* a, int64_t rows, int64_t lda, int64_t columns, T* total) {
  alignas(64) T partial[kSumColumns];
  for (int64_t j = 0; j < columns; ++j) total[j] = T(0);
  for (int64_t r0 = 0; r0 < rows; r0 += kSumRows) {
    const int64_t count = smaller(kSumRows, rows - r0);
    for (int64_t j = 0; j < columns; ++j) partial[j] = T(0);
    int64_t r = 0;
    for (; r + 8 <= count; r += 8) add_rows<T, 8>(a + (r0 + r) * lda, lda, columns, partial);
    for (; r < count; ++r) add_rows<T, 1>(a + (r0 + r) * lda, lda, columns, partial);
    for (int64_t j = 0; j < columns; ++j) total[j] += partial[j];
  }
}

/// Sums columns of rows that are narrower than a vector and contiguous: `Columns` vectors hold as many rows as a vector
/// has lanes. Each lane has a sum of its own, and the lanes of a column are added at the end.
template <typename T, int Columns>
void sum_of_narrow(const T* a, int64_t rows, T* out) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  for (int64_t c = 0; c < Columns; ++c) out[c] = T(0);
  int64_t r = 0;
  while (r + kLanes <= rows) {
    Vector<T> sums[Columns]{};
    for (int64_t n = 0; n < kSumRows && r + kLanes <= rows; ++n, r += kLanes) {
#pragma GCC unroll 16
      for (int v = 0; v < Columns; ++v) sums[v] += load(a + r * Columns + v * kLanes);
    }
    T lanes[Columns * kLanes];
    for (int v = 0; v < Columns; ++v) store(lanes + v * kLanes, sums[v]);
    for (int64_t width = kLanes / 2; width > 0; width /= 2)
      for (int64_t i = 0; i < width * Columns; ++i) lanes[i] += lanes[i + width * Columns];
    for (int64_t c = 0; c < Columns; ++c) out[c] += lanes[c];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < Columns; ++c) out[c] += a[r * Columns + c];
}

/// Calls sum_of_narrow for `columns` columns. False if there are too many.
template <typename T, int Columns = 1>
bool sum_if_narrow(const T* a, int64_t rows, int64_t columns, T* out) {
  if constexpr (Columns <= Simd<T>::kLanes / 2) {
    if (columns != Columns) return sum_if_narrow<T, Columns + 1>(a, rows, columns, out);
    sum_of_narrow<T, Columns>(a, rows, out);
    return true;
  }
  return false;
}

template <typename T>
void column_sum(const void* a_data, int64_t rows, int64_t lda, void* out_data, int64_t c0, int64_t c1) {
  const T* a = static_cast<const T*>(a_data);
  T* out = static_cast<T*>(out_data);
  if (c0 == 0 && c1 == lda && sum_if_narrow(a, rows, lda, out)) return;
  for (int64_t c = c0; c < c1; c += kSumColumns) sum_columns(a + c, rows, lda, smaller(kSumColumns, c1 - c), out + c);
}

}  // namespace
}  // namespace weft::runtime
