#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/tile.h"

namespace weft::runtime {
namespace {

// Products of matrices that are not packed, for GemmKernel. The choice of algorithm depends on the sizes of the whole
// product, never on the rectangle at hand, so that the bits don't depend on how the product is split.

constexpr int kGemmUnits = 3;
constexpr int kGemmRows = block_shape(kGemmUnits).rows;
/// Up to this many rows and steps, a product whose columns fit a vector is computed without a panel.
constexpr int64_t kNarrow = 16;
/// From this many rows on it pays to copy columns of b into a panel.
constexpr int64_t kRowsWorthPacking = 24;
/// Up to this many rows a transposed b is read along its rows, as dot products.
constexpr int64_t kMostDotRows = 4;
constexpr int kDotColumns = 4;

/// c[r][0..columns) for R rows (of block()). If `columns` is less than the panel's width, the result goes through a
/// tile.
template <typename T, int Units, bool AlongK>
void gemm_block(int64_t rows, int64_t k, LeftOperand<T> left, const T* b, int64_t b_step, int64_t columns, T* c,
                int64_t ldc) {
  constexpr int64_t kWidth = Units * Simd<T>::kUnitLanes;
  constexpr int kStrip = kVectorBytes == 64 ? Units : block_shape(Units).strip;
  alignas(64) T tile[kGemmRows * kWidth];
  const bool whole = columns == kWidth;
  T* target = whole ? c : tile;
  const int64_t step = whole ? ldc : kWidth;
  for (int64_t strip = 0; strip < kWidth; strip += kStrip * Simd<T>::kLanes)
    block_of_rows<T, kStrip, kGemmRows, AlongK>(rows, k, left, b + strip, b_step, target + strip, step, Onto::kNothing);
  if (whole) return;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) c[i * ldc + j] = tile[i * kWidth + j];
}

/// Columns n..n+columns-1 of b as [k][width], zeros behind them.
template <typename T>
void gemm_pack(const GemmArgs& args, int64_t n, int64_t columns, int64_t width, T* panel) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  const T* b = static_cast<const T*>(args.b);
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t count = columns - j < 0 ? 0 : smaller(columns - j, kLanes);
    const int64_t first = n + (count > 0 ? j : 0);
    if (args.transpose_b)
      transpose_strip(b + first * args.ldb, args.ldb, count, args.k, panel + j, width);
    else
      copy_strip(b + first, args.ldb, count, args.k, panel + j, width);
  }
}

template <typename T, int Units>
void gemm_panel(const GemmArgs& args, int64_t m0, int64_t m1, int64_t n, int64_t columns, T* panel) {
  constexpr int64_t kWidth = Units * Simd<T>::kUnitLanes;
  const bool packs = args.transpose_b || columns < kWidth || args.m >= kRowsWorthPacking;
  if (packs) gemm_pack(args, n, columns, kWidth, panel);
  const T* b = packs ? panel : static_cast<const T*>(args.b) + n;
  const int64_t b_step = packs ? kWidth : args.ldb;
  const T* a = static_cast<const T*>(args.a);
  T* c = static_cast<T*>(args.c) + n;
  for (int64_t m = m0; m < m1; m += kGemmRows) {
    const int64_t rows = smaller(kGemmRows, m1 - m);
    if (args.transpose_a)
      gemm_block<T, Units, false>(rows, args.k, {a + m, 1, args.lda}, b, b_step, columns, c + m * args.ldc, args.ldc);
    else
      gemm_block<T, Units, true>(rows, args.k, {a + m * args.lda, args.lda, 1}, b, b_step, columns, c + m * args.ldc,
                                 args.ldc);
  }
}

template <typename T>
[[gnu::always_inline]] inline T sum_of_lanes(Vector<T> v) {
  T lanes[Simd<T>::kLanes];
  store(lanes, v);
  for (int half = Simd<T>::kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

/// c[n..n+J) = a . b[n..n+J), for one row of a.
template <typename T, int J>
[[gnu::always_inline]] inline void dots(int64_t k, const T* a, const T* b, int64_t ldb, T* c) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  Vector<T> even[J], odd[J];
#pragma GCC unroll 8
  for (int j = 0; j < J; ++j) even[j] = odd[j] = Vector<T>{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes) {
    const Vector<T> x = load(a + i), y = load(a + i + kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < J; ++j) {
      even[j] += x * load(b + j * ldb + i);
      odd[j] += y * load(b + j * ldb + i + kLanes);
    }
  }
  for (; i < k; i += kLanes) {
    const int64_t count = smaller(kLanes, k - i);
    const Vector<T> x = load_first(a + i, count);
#pragma GCC unroll 8
    for (int j = 0; j < J; ++j) even[j] += x * load_first(b + j * ldb + i, count);
  }
#pragma GCC unroll 8
  for (int j = 0; j < J; ++j) c[j] = sum_of_lanes<T>(even[j] + odd[j]);
}

template <typename T>
void gemm_dots(const GemmArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, T* row) {
  const T* b = static_cast<const T*>(args.b);
  for (int64_t m = m0; m < m1; ++m) {
    const T* a = static_cast<const T*>(args.a) + (args.transpose_a ? m : m * args.lda);
    if (args.transpose_a && args.lda != 1) {
      for (int64_t i = 0; i < args.k; ++i) row[i] = a[i * args.lda];
      a = row;
    }
    T* c = static_cast<T*>(args.c) + m * args.ldc;
    int64_t n = n0;
    for (; n + kDotColumns <= n1; n += kDotColumns) dots<T, kDotColumns>(args.k, a, b + n * args.ldb, args.ldb, c + n);
    for (; n < n1; ++n) dots<T, 1>(args.k, a, b + n * args.ldb, args.ldb, c + n);
  }
}

/// A product of few rows and steps whose columns fit one vector, as in a batch of small matrices. Making a panel would
/// take longer.
template <typename T>
void gemm_narrow(const GemmArgs& args, int64_t m0, int64_t m1, int64_t n, int64_t columns) {
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b) + n;
  T* c = static_cast<T*>(args.c) + n;
  const int64_t row = args.transpose_a ? 1 : args.lda, step = args.transpose_a ? args.lda : 1;
  for (int64_t m = m0; m < m1; ++m) {
    Vector<T> sum{};
    for (int64_t k = 0; k < args.k; ++k) sum += a[m * row + k * step] * load_first(b + k * args.ldb, columns);
    T lanes[Simd<T>::kLanes];
    store(lanes, sum);
    for (int64_t j = 0; j < columns; ++j) c[m * args.ldc + j] = lanes[j];
  }
}

template <typename T>
void gemm(const GemmArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch) {
  constexpr int64_t kUnit = Simd<T>::kUnitLanes;
  if (args.k == 0) {  // a and b may have no memory to point into
    for (int64_t m = m0; m < m1; ++m)
      for (int64_t n = n0; n < n1; ++n) static_cast<T*>(args.c)[m * args.ldc + n] = T(0);
    return;
  }
  T* panel = static_cast<T*>(scratch);
  if (args.transpose_b && args.m <= kMostDotRows) {
    gemm_dots<T>(args, m0, m1, n0, n1, panel);
    return;
  }
  if (!args.transpose_b && args.m <= kNarrow && args.k <= kNarrow && n1 - n0 <= Simd<T>::kLanes) {
    gemm_narrow<T>(args, m0, m1, n0, n1 - n0);
    return;
  }
  for (int64_t n = n0; n < n1;) {
    const int64_t columns = smaller(kGemmUnits * kUnit, n1 - n);
    // Whole units first, so that only the last columns are copied to fill a unit.
    if (columns >= 3 * kUnit) {
      gemm_panel<T, 3>(args, m0, m1, n, 3 * kUnit, panel);
      n += 3 * kUnit;
    } else if (columns >= 2 * kUnit) {
      gemm_panel<T, 2>(args, m0, m1, n, 2 * kUnit, panel);
      n += 2 * kUnit;
    } else {
      const int64_t now = smaller(columns, kUnit);
      gemm_panel<T, 1>(args, m0, m1, n, now, panel);
      n += now;
    }
  }
}

}  // namespace
}  // namespace weft::runtime
