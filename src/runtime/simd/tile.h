#pragma once

#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// The register block for panels of `units` 64-byte units: `strip` registers side by side, `rows` rows. strip x rows
/// accumulators, the strip of the panel and one broadcast fit the register file, with at least 8 accumulators so that the
/// latency of an FMA (4 cycles, two a cycle) is hidden. Not more than 8 rows: with a power of two as the left operand's
/// row step, more would not fit the ways of a first-level cache.
struct BlockShape {
  int strip, rows;
};

constexpr BlockShape block_shape(int units) {
  if (kVectorBytes == 64) {
    constexpr int kRows[] = {0, 8, 8, 8, 6};
    return {units, kRows[units]};
  }
  if (kVectorBytes == 32) return units == 3 ? BlockShape{3, 4} : BlockShape{2, 6};
  return {2, 4};
}

/// Where element (row r, step k) of the left operand lies: at a[r * row_step + k * k_step].
template <typename T>
struct LeftOperand {
  const T* data;
  int64_t row_step, k_step;
};

/// Asks for the lines of c early: they are far apart, and often no nearer than the last-level cache.
template <typename T, int S, int R>
[[gnu::always_inline]] inline void prefetch_rows(const T* c, int64_t ldc) {
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int s = 0; s < S * kVectorBytes; s += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(c + r * ldc) + s, 1, 3);
}

/// c[r][0..S*lanes) (+)= sum over k, in order, of a(r, k) * b[k * b_step + 0..S*lanes), r in 0..R-1, all in registers.
/// kAlongK: the left operand's k_step is 1, otherwise its row_step is 1.
template <typename T, int S, int R, bool kAlongK>
[[gnu::noinline]] void block(int64_t k, LeftOperand<T> left, const T* b, int64_t b_step, T* c, int64_t ldc,
                             bool accumulate) {
  constexpr int kLanes = Simd<T>::kLanes;
  Vector<T> sum[R][S];
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) sum[r][s] = Vector<T>{};
  if (!kAlongK && accumulate) prefetch_rows<T, S, R>(c, ldc);
  const T* a = left.data;
  const int64_t row_step = kAlongK ? left.row_step : 1;
  const int64_t k_step = kAlongK ? 1 : left.k_step;
  for (int64_t i = 0; i < k; ++i) {
    Vector<T> strip[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) strip[s] = load(b + s * kLanes);
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r) {
      const Vector<T> x = splat(a[r * row_step]);
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[r][s] += x * strip[s];
    }
    a += k_step;
    b += b_step;
  }
  // Hides that c is still the same, or the addresses of all rows are computed early and spilled.
  asm("" : "+r"(c), "+r"(ldc));
  if (accumulate) {
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sum[r][s] += load(c + r * ldc + s * kLanes);
  }
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) store(c + r * ldc + s * kLanes, sum[r][s]);
}

/// block() for a row count known at run time, 1..R.
template <typename T, int S, int R, bool kAlongK>
[[gnu::always_inline]] inline void block_of_rows(int64_t rows, int64_t k, LeftOperand<T> left, const T* b,
                                                 int64_t b_step, T* c, int64_t ldc, bool accumulate) {
  if (rows == R) {
    block<T, S, R, kAlongK>(k, left, b, b_step, c, ldc, accumulate);
  } else if constexpr (R > 1) {
    block_of_rows<T, S, R - 1, kAlongK>(rows, k, left, b, b_step, c, ldc, accumulate);
  }
}

/// Rows are cut into blocks of nearly the same size: 9 rows are 5 and 4, not 8 and a slow 1.
template <typename T, int kUnits>
void tile(int64_t rows, int64_t k, const void* a_data, int64_t lda, const void* panel_data, void* c_data, int64_t ldc,
          int64_t accumulate) {
  if (rows <= 0) return;
  constexpr BlockShape kShape = block_shape(kUnits);
  constexpr int64_t kWidth = kUnits * Simd<T>::kUnitLanes;
  constexpr int64_t kStripWidth = kShape.strip * Simd<T>::kLanes;
  const T* panel = static_cast<const T*>(panel_data);
  T* c_strip = static_cast<T*>(c_data);
  const int64_t blocks = ceil_div(rows, kShape.rows);
  for (int64_t strip = 0; strip < kWidth; strip += kStripWidth) {
    const T* a = static_cast<const T*>(a_data);
    T* c = c_strip + strip;
    for (int64_t left = rows, block = blocks; block > 0; --block) {
      const int64_t count = ceil_div(left, block);
      block_of_rows<T, kShape.strip, kShape.rows, true>(count, k, {a, lda, 1}, panel + strip, kWidth, c, ldc,
                                                        accumulate != 0);
      a += count * lda;
      c += count * ldc;
      left -= count;
    }
  }
}

}  // namespace
}  // namespace weft::runtime
