#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/columns.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/tile.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

// Products with weights as they lie, for ProductKernel: for few rows, packing costs more than it gains. Transposed
// weights are read along their rows, as dot products; others by columns, where the sums have the order and the bits of
// those on panels (tile.h). Each sum has one order, whatever the rows and columns beside it.

// ---- sums of lanes

/// Lanes in the 16 bytes within which shuffles are cheap, and how many such blocks a vector has.
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

/// Adds each even block of 16 bytes to the odd block behind it. The result has the sums of a's blocks, then the sums of
/// b's blocks.
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

/// From kBlocks such results, the sums over all blocks, in order.
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

/// How many rows of the left operand are multiplied at once. Each block of rows loads all of the weights again. Where
/// rows of the weights don't begin with a cache line, most of these loads go across two lines.
constexpr int kMostRowsOfDots = target::rows_of_dots(kVectorBytes == 64);

/// Rows of the weights at once: enough sums to hide the latency of an FMA.
template <typename T>
constexpr int dots_at_once(int rows) {
  const int most = rows * 8 <= (kVectorBytes == 64 ? 16 : 8) ? 8 : 4;
  return most < Simd<T>::kLanes ? most : Simd<T>::kLanes;
}

/// Rows of the weights for each of which a dot product prefetches at most a line. (One row would cost as much as a
/// quarter of the multiply-adds.)
constexpr int kDotsATick = 2;

/// Contiguous memory that is prefetched into the core's own cache. The first-level cache has no room for it beside the
/// rows at hand.
struct OwnCacheAhead {
  uintptr_t at;
  LineClock clock;

  [[gnu::always_inline]] void advance() {
    if (!clock.tick()) return;
    __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
    at += target::kCacheLine;
  }
};

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
      if (j % kDotsATick == 0) ahead.advance();
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
      if (column + part >= count) {  // no such columns: their sums would be thrown away
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

/// The address of the unit of weights that is multiplied after `unit` of `group`. Behind the last unit no memory has to
/// be there.
template <typename Kind>
uintptr_t unit_after(const UnpackedArgs<Kind>& args, int64_t group, int64_t unit) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes;
  int64_t row = args.units * kUnit;
  if (unit + 1 < args.units)
    row = group * args.layout.n + (unit + 1) * kUnit;
  else if (group + 1 < args.layout.groups)
    row = (group + 1) * args.layout.n;
  return reinterpret_cast<uintptr_t>(args.weights) +
         static_cast<uintptr_t>(row * args.layout.ld * int64_t{sizeof(typename Kind::Right)});
}

/// `to_next`: `ahead` prefetches the weights of the next unit while a unit is multiplied.
template <typename Kind, typename Ahead>
void dots_of_groups(const UnpackedArgs<Kind>& args, bool to_next, Ahead& ahead) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes;
  const int64_t k = args.layout.k, steps = steps_of_dots<Kind>(k), ldc = args.ldc();
  for (int64_t group = 0; group < args.layout.groups; ++group)
    for (int64_t unit = 0; unit < args.units; ++unit) {
      const int64_t here = smaller(kUnit, args.columns - unit * kUnit);
      if (here <= 0) continue;  // no stage reads that far
      const auto* weights = args.weights + (group * args.layout.n + unit * kUnit) * args.layout.ld;
      auto* c = args.places(group).at(unit);
      if constexpr (requires { ahead.at; })
        if (to_next) ahead.at = unit_after(args, group, unit);
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

/// Dot products of more rows than are taken at once prefetch the weights of the next unit. The first rows would
/// otherwise wait for a unit's weights, and the others, which find them in the cache, would ask for nothing meanwhile.
/// With fewer rows the multiply-adds are so short that the processor runs ahead itself. The units that are needed at
/// once have to fit the smallest cache that a core has of its own, 256 KiB.
///
/// (Xeon, weights from the last-level cache, us without and with it, AVX2: 4 rows by 3072 rows of 512 290 and 230, 8
/// rows 400 and 315, 12 rows 535 and 435; AVX-512: 8 rows 260 and 210, 12 rows 310 and 235. Weights from the core's own
/// cache: the same.)
template <typename Kind>
bool prefetches_next_unit(int64_t rows, const ProductLayout& layout) {
  constexpr int64_t kMostBytes = 1 << 17;
  const int64_t bytes = Simd<typename Kind::Sum>::kUnitLanes * layout.k * int64_t{sizeof(typename Kind::Right)};
  return rows > kMostRowsOfDots && layout.k >= Kind::kSteps && layout.ld == layout.k && bytes <= kMostBytes;
}

template <typename Kind>
UnpackedArgs<Kind> unpacked_args(int64_t rows, const void* a, int64_t lda, const void* weights, int64_t first,
                                 int64_t count, void* c, const ProductLayout& layout) {
  using T = typename Kind::Sum;
  constexpr int64_t kUnit = Simd<T>::kUnitLanes;
  const int64_t units = count * layout.unroll;
  const int64_t column = first * layout.unroll * kUnit;  // within its group
  return {rows,
          static_cast<const typename Kind::Left*>(a),
          lda,
          static_cast<const typename Kind::Right*>(weights) + column * (layout.transposed ? layout.ld : 1),
          smaller(units * kUnit, layout.n - column),
          units,
          static_cast<T*>(c),
          layout};
}

/// Products of weights [N, K], by dot products. Prefetches its own next weights, and not `ahead`, if
/// prefetches_next_unit() is true.
template <typename Kind>
void product_of_dots(const UnpackedArgs<Kind>& args, const void* ahead, int64_t lines) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes;
  const ProductLayout& layout = args.layout;
  const int64_t rows = args.rows;
  const bool to_next = prefetches_next_unit<Kind>(rows, layout);
  const int64_t ticks = kUnit / kDotsATick * (layout.k / Kind::kSteps) * ceil_div(rows, kMostRowsOfDots);  // of a unit
  const int64_t due = to_next ? kUnit * layout.k * int64_t{sizeof(typename Kind::Right)} : lines * target::kCacheLine;
  const int64_t all = to_next ? ticks : args.units * layout.groups * ticks;
  if (due == 0 || all == 0) {
    NothingAhead nothing;
    return dots_of_groups(args, false, nothing);
  }
  // Not with_run_ahead(), which asks for two lines a step where steps of part of a vector leave slightly too few: that
  // is slower, and half a megabyte more code.
  OwnCacheAhead run{reinterpret_cast<uintptr_t>(ahead), LineClock(smaller(ceil_div(due, all), target::kCacheLine))};
  dots_of_groups(args, to_next, run);
}

/// ProductKernel without panels. Weights [K, N] prefetch their own next rows, and not `ahead`.
template <typename Kind>
void unpacked_product(int64_t rows, const void* a, int64_t lda, const void* weights, int64_t first, int64_t count,
                      void* c, const ProductLayout& layout, const void* ahead, int64_t lines) {
  const UnpackedArgs<Kind> args = unpacked_args<Kind>(rows, a, lda, weights, first, count, c, layout);
  if (layout.transposed)
    product_of_dots(args, ahead, lines);
  else
    parts_of_columns(args);
}

}  // namespace
}  // namespace weft::runtime
