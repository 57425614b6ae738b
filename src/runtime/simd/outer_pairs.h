#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/pairs.h"
#include "runtime/simd/unpacked.h"

namespace weft::runtime {
namespace {

// The op `outer` on bf16: products of a transposed part of `a` with panels of pairs of `b`, summed in f32 in a tile
// that stays in the second-level cache, and rounded once. Few rows are widened instead, and their products summed in
// registers, since laying them out anew would take longer.

constexpr int64_t kHalfSteps = 512;  ///< rows of a and b at a time
constexpr int kHalfUnits = 3;
constexpr int64_t kHalfPanelWidth = kHalfUnits * Simd<float>::kUnitLanes;

/// Part: the rows of the tile; Columns: its columns. Each operand is packed again for each part of the other operand.
/// Where products are fast, packing takes more of the time, and larger parts pay.
template <int64_t Part, int64_t Columns>
struct OuterPairsScratch {
  static constexpr int64_t kPart = Part, kColumns = Columns;
  alignas(64) float tile[Part * Columns];
  alignas(64) uint32_t panels[kHalfSteps / 2 * Columns];
  alignas(64) uint16_t left[Part * kHalfSteps];
};

/// to[j * kHalfSteps + i] = from[i * ld + j] for i < steps and j < columns. Takes some rows at a time and prefetches
/// them: the processor's own prefetcher doesn't foresee rows that are far apart.
inline void transpose_halves(const uint16_t* from, int64_t ld, int64_t steps, int64_t columns, uint16_t* to) {
  constexpr int kLanes = Simd<float>::kLanes;
  const int64_t whole_columns = columns / kLanes * kLanes, whole_steps = steps / (2 * kLanes) * (2 * kLanes);
  for (int64_t i = 0; i < whole_steps; i += int64_t{2} * kLanes)
    for (int64_t j = 0; j < whole_columns; j += kLanes) {
      Vector<float> square[kLanes];
#pragma GCC unroll 16
      for (int p = 0; p < kLanes; ++p) {
        const uint16_t* row = from + (i + 2 * p) * ld + j;
        square[p] = pairs_of(row, row + ld);
        prefetch_bytes(row, int64_t{4} * kLanes * ld);  // the next rows: 2 kLanes of them, of 2 bytes an element
        prefetch_bytes(row + ld, int64_t{4} * kLanes * ld);
      }
      transpose_square<float>(square);
#pragma GCC unroll 16
      for (int p = 0; p < kLanes; ++p) store(reinterpret_cast<float*>(to + (j + p) * kHalfSteps + i), square[p]);
    }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = j < whole_columns ? whole_steps : 0; i < steps; ++i) to[j * kHalfSteps + i] = from[i * ld + j];
}

/// Columns n..n+columns-1 of the rows as panels of pairs, zeros behind them.
inline void pair_panels(const uint16_t* b, int64_t ld, int64_t steps, int64_t columns, uint32_t* panels) {
  constexpr int64_t kUnit = Simd<float>::kUnitLanes;
  for (int64_t column = 0; column < ceil_div(columns, kHalfPanelWidth) * kHalfPanelWidth; column += kUnit) {
    const int64_t count = columns - column < 0 ? 0 : smaller(columns - column, kUnit);
    interleave_rows(b + (count > 0 ? column : 0), ld, count, steps,
                    panels + column / kHalfPanelWidth * ceil_div(steps, 2) * kHalfPanelWidth + column % kHalfPanelWidth,
                    kHalfPanelWidth);
  }
}

/// Rounds to the nearest bf16, ties to even; a NaN stays one.
inline void round_row(const float* from, int64_t count, uint16_t* to) {
  for (int64_t j = 0; j < count; ++j) {
    uint32_t bits;
    __builtin_memcpy(&bits, from + j, sizeof(bits));
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    to[j] = static_cast<uint16_t>(is_nan ? bits >> 16 | 0x40 : rounded);
  }
}

/// Rows of at most this number are widened as they lie; more rows are laid out in pairs.
constexpr int64_t kMostWidenedRows = 8;
constexpr int64_t kWidenedColumns = 512;

/// round_row() of one vector.
[[gnu::always_inline]] inline HalfVector rounded(Vector<float> x) {
  using Bits __attribute__((vector_size(kVectorBytes))) = int32_t;
  const auto bits = reinterpret_cast<WideBits>(x);
  const WideBits nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const Bits is_nan = reinterpret_cast<Bits>(bits & 0x7fffffff) > 0x7f800000;
  return __builtin_convertvector(is_nan ? bits >> 16 | 0x40 : nearest, HalfVector);
}

/// c[m][n..n+columns-1] for m0 <= m < m1 and R rows, whose columns are in `wide`, [R][kWidenedColumns].
template <int R>
void outer_widened(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n, int64_t columns, const float* wide) {
  constexpr int64_t kLanes = Simd<float>::kLanes;
  const auto* a = static_cast<const uint16_t*>(args.a);
  for (int64_t m = m0; m < m1; ++m) {
    uint16_t* c = static_cast<uint16_t*>(args.c) + m * args.ldc + n;
    Vector<float> x[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) x[r] = splat(__builtin_bit_cast(float, uint32_t{a[r * args.lda + m]} << 16));
    for (int64_t j = 0; j < columns; j += kLanes) {
      Vector<float> sum{};
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum += x[r] * load(wide + r * kWidenedColumns + j);
      const HalfVector halves = rounded(sum);
      if (j + kLanes <= columns)
        __builtin_memcpy(c + j, &halves, sizeof(halves));
      else
        for (int64_t i = 0; j + i < columns; ++i) c[j + i] = halves[i];
    }
  }
}

template <int R = 1>
void outer_of_few(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  if constexpr (R < kMostWidenedRows)
    if (args.rows > R) return outer_of_few<R + 1>(args, m0, m1, n0, n1);
  alignas(64) float wide[R * kWidenedColumns];
  const auto* b = static_cast<const uint16_t*>(args.b);
  for (int64_t n = n0; n < n1; n += kWidenedColumns) {
    const int64_t columns = smaller(kWidenedColumns, n1 - n);
    for (int r = 0; r < R; ++r)
      for (int64_t j = 0; j < kWidenedColumns; ++j)  // zeros to the end of the last vector
        wide[r * kWidenedColumns + j] =
            j < columns ? __builtin_bit_cast(float, uint32_t{b[r * args.ldb + n + j]} << 16) : 0;
    outer_widened<R>(args, m0, m1, n, columns, wide);
  }
}

template <AheadKernel kPanels, typename Scratch>
void outer_pairs(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* memory) {
  constexpr int64_t kHalfPart = Scratch::kPart, kHalfColumns = Scratch::kColumns;
  if (args.rows > 0 && args.rows <= kMostWidenedRows) return outer_of_few(args, m0, m1, n0, n1);
  auto& scratch = *static_cast<Scratch*>(memory);
  const auto *a = static_cast<const uint16_t*>(args.a), *b = static_cast<const uint16_t*>(args.b);
  auto* c = static_cast<uint16_t*>(args.c);
  for (int64_t n = n0; n < n1; n += kHalfColumns) {
    const int64_t columns = smaller(kHalfColumns, n1 - n);
    for (int64_t m = m0; m < m1; m += kHalfPart) {
      const int64_t rows = smaller(kHalfPart, m1 - m);
      for (int64_t r = 0; r == 0 || r < args.rows; r += kHalfSteps) {
        const int64_t steps = smaller(kHalfSteps, args.rows - r);
        if (steps > 0 && (m == m0 || args.rows > kHalfSteps))
          pair_panels(b + r * args.ldb + n, args.ldb, steps, columns, scratch.panels);
        if (steps > 0) transpose_halves(a + r * args.lda + m, args.lda, steps, rows, scratch.left);
        kPanels(rows, steps, scratch.left, kHalfSteps, scratch.panels, ceil_div(columns, Simd<float>::kUnitLanes),
                scratch.tile, kHalfColumns, kHalfPanelWidth, r > 0, nullptr, 0);
      }
      for (int64_t i = 0; i < rows; ++i)
        round_row(scratch.tile + i * kHalfColumns, columns, c + (m + i) * args.ldc + n);
    }
  }
}

}  // namespace
}  // namespace weft::runtime
