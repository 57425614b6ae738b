#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/columns.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/tile.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

// Products with unpacked weights, for ProductKernel: with few rows, packing costs more than it gains. Transposed
// weights are read along their rows, as dot products. Others are read by columns; their sums have the order and the
// bits of products on panels (tile.h). The order of a sum doesn't depend on other rows and columns.

// ---- sums of lanes

/// The number of lanes in 16 bytes, within which shuffles are cheap, and the number of such blocks in a vector.
template <typename T>
constexpr int kBlockLanes = 16 / int{sizeof(T)};
constexpr int kBlocks = kVectorBytes / 16;

/// Within each 16 bytes, adds the low half of a to its high half, and b's halves likewise. The sums' lanes alternate
/// between a and b.
template <typename T, int... Lane>
[[gnu::always_inline]] inline Vector<T> add_unpacked(Vector<T> a, Vector<T> b, Lanes<Lane...> lanes) {
  constexpr int kHere = kBlockLanes<T>;
  return __builtin_shufflevector(a, b, ((Lane % 2) * lanes.kCount + Lane / kHere * kHere + Lane % kHere / 2)...) +
         __builtin_shufflevector(a, b,
                                 ((Lane % 2) * lanes.kCount + Lane / kHere * kHere + Lane % kHere / 2 + kHere / 2)...);
}

/// Adds each even block of 16 bytes and the odd block after it: first for a, then for b.
template <typename T, int... Lane>
[[gnu::always_inline]] inline Vector<T> add_picked(Vector<T> a, Vector<T> b, Lanes<Lane...> lanes) {
  constexpr int kHere = kBlockLanes<T>, kCount = lanes.kCount;
  return __builtin_shufflevector(a, b,
                                 (Lane / kHere * 2 * kHere % kCount + Lane * 2 / kCount * kCount + Lane % kHere)...) +
         __builtin_shufflevector(
             a, b, ((Lane / kHere * 2 + 1) * kHere % kCount + Lane * 2 / kCount * kCount + Lane % kHere)...);
}

/// From kBlockLanes vectors: in each 16 bytes of the result, lane i is the sum of vector i's lanes in these bytes.
template <typename T>
[[gnu::always_inline]] inline Vector<T> sums_of_blocks(const Vector<T>* v) {
  if constexpr (kBlockLanes<T> == 4) {
    return add_unpacked<T>(add_unpacked<T>(v[0], v[2], AllLanes<T>()), add_unpacked<T>(v[1], v[3], AllLanes<T>()),
                           AllLanes<T>());
  } else {
    return add_unpacked<T>(v[0], v[1], AllLanes<T>());
  }
}

/// From kBlocks such results: the sums over all blocks, in order.
template <typename T>
[[gnu::always_inline]] inline Vector<T> sums_over_blocks(const Vector<T>* q) {
  if constexpr (kBlocks == 4) {
    return add_picked<T>(add_picked<T>(q[0], q[1], AllLanes<T>()), add_picked<T>(q[2], q[3], AllLanes<T>()),
                         AllLanes<T>());
  } else if constexpr (kBlocks == 2) {
    return add_picked<T>(q[0], q[1], AllLanes<T>());
  } else {
    return q[0];
  }
}

// ---- dot products with rows of the weights

/// Rows of the left operand at once. Each block of rows loads all of the weights again, most of them across two lines
/// where rows of the weights don't begin with one.
constexpr int kMostRowsOfDots = target::rows_of_dots(kVectorBytes == 64);

/// Rows of the weights at once: enough sums to hide the latency of an FMA.
template <typename T>
constexpr int dots_at_once(int rows) {
  const int most = rows * 8 <= (kVectorBytes == 64 ? 16 : 8) ? 8 : 4;
  return most < Simd<T>::kLanes ? most : Simd<T>::kLanes;
}

/// sums[r][j] = a[r] . b[j], lane by lane.
template <typename Kind, int R, int J, typename Ahead>
[[gnu::always_inline]] inline void dot_lanes(int64_t k, const typename Kind::Left* a, int64_t lda,
                                             const typename Kind::Right* const (&b)[J],
                                             Vector<typename Kind::Sum> (&sums)[R][J], Ahead& ahead) {
  using V = Vector<typename Kind::Sum>;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) sums[r][j] = V{};
  int64_t i = 0;
  for (; i + Kind::kSteps <= k; i += Kind::kSteps) {
    decltype(Kind::left(a)) x[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) x[r] = Kind::left(a + r * lda + i);
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) {
      const auto y = Kind::right(b[j] + i);
      ahead.advance();
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) Kind::add(sums[r][j], x[r], y);
    }
  }
  if (i == k) return;
  decltype(Kind::left(a)) x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = Kind::left_first(a + r * lda + i, k - i);
#pragma GCC unroll 16
  for (int j = 0; j < J; ++j) {
    const auto y = Kind::right_first(b[j] + i, k - i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) Kind::add(sums[r][j], x[r], y);
  }
}

/// Steps of a dot product in each part but the last.
template <typename Kind>
int64_t steps_of_dots(int64_t k) {
  constexpr int64_t kMost = target::kBytesOfDots / int64_t{sizeof(typename Kind::Left)};
  return k <= kMost ? k : ceil_div(ceil_div(k, ceil_div(k, kMost)), Kind::kSteps) * Kind::kSteps;
}

/// c[r][0..lanes of a unit) = a[r] . b[0..count), 0 in the rest. `adds`: adds this to c.
template <typename Kind, int R, typename Ahead>
[[gnu::noinline]] void dot_unit(int64_t k, const typename Kind::Left* a, int64_t lda, const typename Kind::Right* b,
                                int64_t ldb, int64_t count, typename Kind::Sum* c, int64_t ldc, bool adds,
                                Ahead& ahead) {
  using T = typename Kind::Sum;
  constexpr int kLanes = Simd<T>::kLanes, kDots = dots_at_once<T>(R);
  Ahead asks = ahead;  // a copy, which stays in registers
  for (int64_t column = 0; column < Simd<T>::kUnitLanes; column += kLanes) {
    Vector<T> q[R][kBlocks];
#pragma GCC unroll 4
    for (int part = 0; part < kLanes; part += kDots) {
      if (column + part >= count) {  // columns that don't exist: their sums would be thrown away
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int m = 0; m < kDots / kBlockLanes<T>; ++m) q[r][part / kBlockLanes<T> + m] = Vector<T>{};
        continue;
      }
      const typename Kind::Right* rows[kDots];
      Vector<T> sums[R][kDots];
#pragma GCC unroll 16
      for (int j = 0; j < kDots; ++j) rows[j] = b + smaller(column + part + j, count - 1) * ldb;
      dot_lanes<Kind, R, kDots>(k, a, lda, rows, sums, asks);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int m = 0; m < kDots / kBlockLanes<T>; ++m)
          q[r][part / kBlockLanes<T> + m] = sums_of_blocks<T>(sums[r] + m * kBlockLanes<T>);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector<T> sums = sums_over_blocks<T>(q[r]);
      store(c + r * ldc + column, adds ? load(c + r * ldc + column) + sums : sums);
    }
  }
  ahead = asks;
  for (int r = 0; r < R; ++r)
    for (int64_t j = count; j < Simd<T>::kUnitLanes; ++j) c[r * ldc + j] = T(0);
}

/// `Rows` rows or fewer.
template <typename Kind, int Rows, typename Ahead>
[[gnu::always_inline]] inline void dot_unit_of_rows(int64_t rows, int64_t k, const typename Kind::Left* a, int64_t lda,
                                                    const typename Kind::Right* b, int64_t ldb, int64_t count,
                                                    typename Kind::Sum* c, int64_t ldc, bool adds, Ahead& ahead) {
  if (rows == Rows) {
    dot_unit<Kind, Rows>(k, a, lda, b, ldb, count, c, ldc, adds, ahead);
  } else if constexpr (Rows > 1) {
    dot_unit_of_rows<Kind, Rows - 1>(rows, k, a, lda, b, ldb, count, c, ldc, adds, ahead);
  }
}

// ---- the product

template <typename Kind, typename Ahead>
void dots_of_groups(const UnpackedArgs<Kind>& args, Ahead& ahead) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes;
  const int64_t k = args.layout.k, steps = steps_of_dots<Kind>(k), ldc = args.ldc();
  for (int64_t group = 0; group < args.layout.groups; ++group)
    for (int64_t unit = 0; unit < args.units; ++unit) {
      const int64_t here = smaller(kUnit, args.columns - unit * kUnit);
      if (here <= 0) continue;  // no stage reads that far
      const auto* weights = args.weights + (group * args.layout.n + unit * kUnit) * args.layout.ld;
      auto* c = args.places(group).at(unit);
      int64_t i = 0;
      do {  // once if there are no steps at all
        for_rows<kMostRowsOfDots>(args.rows, [&](int64_t row, int64_t some) {
          dot_unit_of_rows<Kind, kMostRowsOfDots>(some, smaller(steps, k - i), args.a + row * args.lda + i, args.lda,
                                                  weights + i, args.layout.ld, here, c + row * ldc, ldc, i > 0, ahead);
        });
        i += steps;
      } while (i < k);
    }
}

/// A ProductKernel without panels. If weights are not transposed, it prefetches its own next columns instead of
/// `ahead`.
template <typename Kind>
void unpacked_product(int64_t rows, const void* a, int64_t lda, const void* weights, int64_t first, int64_t count,
                      void* c, const ProductLayout& layout, const void* ahead, int64_t lines) {
  using T = typename Kind::Sum;
  constexpr int64_t kUnit = Simd<T>::kUnitLanes;
  const int64_t units = count * layout.unroll;
  const int64_t column = first * layout.unroll * kUnit;  // within its group
  const UnpackedArgs<Kind> args{
      rows,
      static_cast<const typename Kind::Left*>(a),
      lda,
      static_cast<const typename Kind::Right*>(weights) + column * (layout.transposed ? layout.ld : 1),
      smaller(units * kUnit, layout.n - column),
      units,
      static_cast<T*>(c),
      layout};
  if (!layout.transposed) return parts_of_columns(args);
  const int64_t steps = units * layout.groups * ceil_div(rows, kMostRowsOfDots) * (layout.k / Kind::kSteps) * 4;
  if (lines == 0 || steps == 0) {
    NothingAhead nothing;
    return dots_of_groups(args, nothing);
  }
  // Not with_run_ahead(): if steps of part of a vector are slightly too few, it asks for two lines a step, which is
  // slower, and half a megabyte more code.
  const int64_t bytes = smaller(ceil_div(lines * target::kCacheLine, steps), target::kCacheLine);
  RunAhead<1> run{reinterpret_cast<uintptr_t>(ahead), LineClock(bytes)};
  dots_of_groups(args, run);
}

}  // namespace
}  // namespace weft::runtime
