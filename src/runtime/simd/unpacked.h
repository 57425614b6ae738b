#pragma once

#include "runtime/kernels.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/tile.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

// Products with weights as they lie, for ProductKernel: for few rows, packing costs more than it gains. Transposed
// weights are read along their rows, as dot products; others by columns, where the sums have the order and the bits of
// those on panels (tile.h). Each sum has one order, whatever the rows and columns beside it.

/// The 16-bit floats of a vector: bf16 are the high halves of f32.
using HalfVector __attribute__((vector_size(kVectorBytes / 2))) = uint16_t;
using UnalignedHalves __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias)) = uint16_t;
using WideBits __attribute__((vector_size(kVectorBytes))) = uint32_t;

[[gnu::always_inline]] inline Vector<float> widen(HalfVector halves) {
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(halves, WideBits) << 16);
}
[[gnu::always_inline]] inline Vector<float> load_wide(const uint16_t* p) {
  return widen(*reinterpret_cast<const UnalignedHalves*>(p));
}
[[gnu::always_inline]] inline Vector<float> load_wide_first(const uint16_t* p, int64_t count) {
#if defined(__AVX512F__)
  return widen(reinterpret_cast<HalfVector>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1U << count) - 1), p)));
#else
  HalfVector v{};
  for (int64_t i = 0; i < count; ++i) v[i] = p[i];
  return widen(v);
#endif
}

/// Weights of the sums' type, or of Source, which become it. A kind says how operands are read: `kSteps` steps of a dot
/// product at once, or a vector of columns of one step. The `_first` ones read less than a vector, 0 in the rest.
template <typename T, typename Source = T>
struct PlainWeights {
  using Left = T;
  using Right = Source;
  using Sum = T;
  static constexpr int kSteps = Simd<T>::kLanes;
  static constexpr bool kIsHalf = false;

  [[gnu::always_inline]] static Vector<T> left(const T* p) { return load(p); }
  [[gnu::always_inline]] static Vector<T> left_first(const T* p, int64_t count) { return load_first(p, count); }
  [[gnu::always_inline]] static Vector<T> right(const Source* p) { return load(p); }
  [[gnu::always_inline]] static Vector<T> right_first(const Source* p, int64_t count) { return load_first(p, count); }
  [[gnu::always_inline]] static void add(Vector<T>& sum, Vector<T> x, Vector<T> y) { sum += x * y; }
  [[gnu::always_inline]] static T scalar(const T* p) { return *p; }
  [[gnu::always_inline]] static Vector<T> columns(const Source* p) { return load(p); }
  [[gnu::always_inline]] static Vector<T> columns_first(const Source* p, int64_t count) { return load_first(p, count); }
};

/// The widened bf16 at even and at odd places of two vectors' worth: a shift and a mask instead of two loads that
/// widen. (AVX2, Zen 3, one row by 4096 rows of 1024: 17 GB/s of weights with these, 43 so.)
struct EvenOdd {
  Vector<float> even, odd;
};

[[gnu::always_inline]] inline EvenOdd split(WideBits pairs) {
  return {reinterpret_cast<Vector<float>>(pairs << 16), reinterpret_cast<Vector<float>>(pairs & 0xffff0000U)};
}
[[gnu::always_inline]] inline EvenOdd load_split(const uint16_t* p) {
  using Unaligned __attribute__((vector_size(kVectorBytes), aligned(2), may_alias)) = uint32_t;
  return split(*reinterpret_cast<const Unaligned*>(p));
}
[[gnu::always_inline]] inline EvenOdd load_split_first(const uint16_t* p, int64_t count) {
  uint16_t halves[kVectorBytes / 2] = {};
  for (int64_t i = 0; i < count; ++i) halves[i] = p[i];
  return load_split(halves);
}

template <int... Lane>
[[gnu::always_inline]] inline EvenOdd split_floats(Vector<float> low, Vector<float> high, Lanes<Lane...>) {
  return {__builtin_shufflevector(low, high, (2 * Lane)...), __builtin_shufflevector(low, high, (2 * Lane + 1)...)};
}

/// bf16 weights: the products are those of the widened operands.
struct HalfColumns {
  using Right = uint16_t;
  using Sum = float;
  static constexpr int kSteps = 2 * Simd<float>::kLanes;
  static constexpr bool kIsHalf = true;

  [[gnu::always_inline]] static EvenOdd right(const uint16_t* p) { return load_split(p); }
  [[gnu::always_inline]] static EvenOdd right_first(const uint16_t* p, int64_t count) {
    return load_split_first(p, count);
  }
  [[gnu::always_inline]] static void add(Vector<float>& sum, const EvenOdd& x, const EvenOdd& y) {
    sum += x.even * y.even;
    sum += x.odd * y.odd;
  }
  [[gnu::always_inline]] static Vector<float> columns(const uint16_t* p) { return load_wide(p); }
  [[gnu::always_inline]] static Vector<float> columns_first(const uint16_t* p, int64_t count) {
    return load_wide_first(p, count);
  }
};

struct HalfWeights : HalfColumns {
  using Left = float;

  [[gnu::always_inline]] static EvenOdd left(const float* p) {
    return split_floats(load(p), load(p + Simd<float>::kLanes), AllLanes<float>());
  }
  [[gnu::always_inline]] static EvenOdd left_first(const float* p, int64_t count) {
    constexpr int64_t kLanes = Simd<float>::kLanes;
    const int64_t low = smaller(count, kLanes);
    return split_floats(load_first(p, low), load_first(p + low, count - low), AllLanes<float>());
  }
  [[gnu::always_inline]] static float scalar(const float* p) { return *p; }
};

/// Both operands bf16.
struct HalfOperands : HalfColumns {
  using Left = uint16_t;
  [[gnu::always_inline]] static float scalar(const uint16_t* p) {
    return __builtin_bit_cast(float, uint32_t{*p} << 16);
  }
#if defined(__AVX512BF16__)
  [[gnu::always_inline]] static __m512i left(const uint16_t* p) { return _mm512_loadu_si512(p); }
  [[gnu::always_inline]] static __m512i left_first(const uint16_t* p, int64_t count) {
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << count) - 1), p);
  }
  [[gnu::always_inline]] static __m512i right(const uint16_t* p) { return left(p); }
  [[gnu::always_inline]] static __m512i right_first(const uint16_t* p, int64_t count) { return left_first(p, count); }
  [[gnu::always_inline]] static void add(Vector<float>& sum, __m512i x, __m512i y) {
    sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
  }
#else
  [[gnu::always_inline]] static EvenOdd left(const uint16_t* p) { return load_split(p); }
  [[gnu::always_inline]] static EvenOdd left_first(const uint16_t* p, int64_t count) {
    return load_split_first(p, count);
  }
#endif
};

// ---- sums of lanes

/// Columns in the 16 bytes within which shuffles are cheap, and how many times these a vector has.
template <typename T>
constexpr int kBlockLanes = 16 / int{sizeof(T)};
constexpr int kBlocks = kVectorBytes / 16;

/// In each 16 bytes, the lanes of a and b by turns: the low halves plus the high ones.
template <typename T, int... Lane>
[[gnu::always_inline]] inline Vector<T> add_unpacked(Vector<T> a, Vector<T> b, Lanes<Lane...> lanes) {
  constexpr int kHere = kBlockLanes<T>;
  return __builtin_shufflevector(a, b, ((Lane % 2) * lanes.kCount + Lane / kHere * kHere + Lane % kHere / 2)...) +
         __builtin_shufflevector(a, b,
                                 ((Lane % 2) * lanes.kCount + Lane / kHere * kHere + Lane % kHere / 2 + kHere / 2)...);
}

/// Blocks of 16 bytes: those at even places of a and then of b, plus those at odd ones.
template <typename T, int... Lane>
[[gnu::always_inline]] inline Vector<T> add_picked(Vector<T> a, Vector<T> b, Lanes<Lane...> lanes) {
  constexpr int kHere = kBlockLanes<T>, kCount = lanes.kCount;
  return __builtin_shufflevector(a, b,
                                 (Lane / kHere * 2 * kHere % kCount + Lane * 2 / kCount * kCount + Lane % kHere)...) +
         __builtin_shufflevector(
             a, b, ((Lane / kHere * 2 + 1) * kHere % kCount + Lane * 2 / kCount * kCount + Lane % kHere)...);
}

/// Of kBlockLanes vectors: each 16 bytes of the result have, for vector i, the sum of its lanes there in lane i.
template <typename T>
[[gnu::always_inline]] inline Vector<T> sums_of_blocks(const Vector<T>* v) {
  if constexpr (kBlockLanes<T> == 4) {
    return add_unpacked<T>(add_unpacked<T>(v[0], v[2], AllLanes<T>()), add_unpacked<T>(v[1], v[3], AllLanes<T>()),
                           AllLanes<T>());
  } else {
    return add_unpacked<T>(v[0], v[1], AllLanes<T>());
  }
}

/// Of kBlocks such results, the sums over all blocks, in order.
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

/// Rows of the left operand at once.
constexpr int kMostRowsAtOnce = kVectorBytes == 64 ? 4 : 3;

/// The same of dot products, each of whose blocks of rows loads all of the weights again, most of them across two lines
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
#pragma GCC unroll 16
  for (int j = 0; j < J; ++j) {
    const auto y = Kind::right_first(b[j] + i, k - i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) Kind::add(sums[r][j], Kind::left_first(a + r * lda + i, k - i), y);
  }
}

/// Steps of a dot product in each part but the last.
template <typename Kind>
int64_t steps_of_dots(int64_t k) {
  constexpr int64_t kMost = target::kBytesOfDots / int64_t{sizeof(typename Kind::Left)};
  return k <= kMost ? k : ceil_div(ceil_div(k, ceil_div(k, kMost)), Kind::kSteps) * Kind::kSteps;
}

/// c[r][0..lanes of a unit) = a[r] . b[0..count), 0 in the rest. `adds`: to what is there.
template <typename Kind, int R, typename Ahead>
[[gnu::noinline]] void dot_unit(int64_t k, const typename Kind::Left* a, int64_t lda, const typename Kind::Right* b,
                                int64_t ldb, int64_t count, typename Kind::Sum* c, int64_t ldc, bool adds,
                                Ahead& ahead) {
  using T = typename Kind::Sum;
  constexpr int kLanes = Simd<T>::kLanes, kDots = dots_at_once<T>(R);
  Ahead asks = ahead;  // in registers
  for (int64_t column = 0; column < Simd<T>::kUnitLanes; column += kLanes) {
    Vector<T> q[R][kBlocks];
#pragma GCC unroll 4
    for (int part = 0; part < kLanes; part += kDots) {
      if (column + part >= count) {  // no columns, whose sums would be thrown away
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

// ---- columns of the weights

/// Units of columns at once.
constexpr int units_at_once(int rows) {
  if (kVectorBytes == 64) return rows <= 2 ? 8 : 4;
  if (kVectorBytes == 32) return rows == 1 ? 4 : 2;
  return rows == 1 ? 2 : 1;
}

/// Where the units of a group lie in the tiles: unit u of the group's columns is the (u % unroll)th of its panel.
template <typename T>
struct UnitPlaces {
  T* first;  ///< of the group, in the first panel's tile
  int64_t unroll, c_step;

  [[gnu::always_inline]] T* at(int64_t unit) const {
    return first + unit / unroll * c_step + unit % unroll * Simd<T>::kUnitLanes;
  }
};

/// The registers of columns of one step, `Registers` vectors from b on, of which the last has `count` columns if they
/// are Partial: body(s, columns) for each. Whole bf16 vectors come in twos, those at even places and those at odd ones,
/// which in_order() undoes.
template <typename Kind, int Registers, bool Partial>
constexpr bool kSplitsColumns = Kind::kIsHalf && !Partial && Registers % 2 == 0;

template <typename Kind, int Registers, bool Partial, typename Body>
[[gnu::always_inline]] inline void for_columns(const typename Kind::Right* b, int64_t count, const Body& body) {
  constexpr int kLanes = Simd<typename Kind::Sum>::kLanes;
  if constexpr (kSplitsColumns<Kind, Registers, Partial>) {
#pragma GCC unroll 8
    for (int s = 0; s < Registers; s += 2) {
      const EvenOdd two = load_split(b + s * kLanes);
      body(s, two.even);
      body(s + 1, two.odd);
    }
  } else {
#pragma GCC unroll 16
    for (int s = 0; s < Registers; ++s) {
      const int64_t here = Partial ? smaller(count - s * kLanes, kLanes) : kLanes;
      if (Partial && here <= 0) break;
      body(s, Partial ? Kind::columns_first(b + s * kLanes, here) : Kind::columns(b + s * kLanes));
    }
  }
}

/// Register s of the columns in their order.
template <typename Kind, int Registers, bool Partial, int R>
[[gnu::always_inline]] inline Vector<typename Kind::Sum> in_order(
    const Vector<typename Kind::Sum> (&sums)[Registers][R], int s, int r) {
  using T = typename Kind::Sum;
  if constexpr (kSplitsColumns<Kind, Registers, Partial>) {
    const Vector<T> even = sums[s / 2 * 2][r], odd = sums[s / 2 * 2 + 1][r];
    return s % 2 == 0 ? interleave<T, false>(even, odd) : interleave<T, true>(even, odd);
  } else {
    return sums[s][r];
  }
}

/// U units from `unit` on, of which the last has `count` columns if they are Partial. b: the unit's first column.
template <typename Kind, int R, int U, bool Partial>
[[gnu::noinline]] void column_units(int64_t k, const typename Kind::Left* a, int64_t lda, const typename Kind::Right* b,
                                    int64_t ldb, int64_t count, const UnitPlaces<typename Kind::Sum>& places,
                                    int64_t unit, int64_t ldc) {
  using T = typename Kind::Sum;
  constexpr int kLanes = Simd<T>::kLanes, kRegisters = U * kRegistersPerUnit;
  Vector<T> sums[kRegisters][R];
#pragma GCC unroll 16
  for (int s = 0; s < kRegisters; ++s)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[s][r] = Vector<T>{};
  for (int64_t i = 0; i < k; ++i, b += ldb) {
    Vector<T> x[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) x[r] = splat(Kind::scalar(a + r * lda + i));
    for_columns<Kind, kRegisters, Partial>(b, count, [&](int s, Vector<T> column) __attribute__((always_inline)) {
      if constexpr (R > 1) keep_in_register(column);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[s][r] += x[r] * column;
    });
  }
#pragma GCC unroll 16
  for (int s = 0; s < kRegisters; ++s)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      store(places.at(unit + s / kRegistersPerUnit) + r * ldc + s % kRegistersPerUnit * kLanes,
            in_order<Kind, kRegisters, Partial>(sums, s, r));
}

/// A group's columns 0..count-1 of the panels at hand, in `units` units, from `unit` on: U units at a time, then U / 2
/// and so on.
template <typename Kind, int R, int U>
void columns_of_group(int64_t k, const typename Kind::Left* a, int64_t lda, const typename Kind::Right* b, int64_t ldb,
                      int64_t count, const UnitPlaces<typename Kind::Sum>& places, int64_t unit, int64_t units,
                      int64_t ldc) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes;
  for (; unit + U <= units && (unit + U) * kUnit <= count; unit += U)
    column_units<Kind, R, U, false>(k, a, lda, b + unit * kUnit, ldb, U * kUnit, places, unit, ldc);
  if constexpr (U > 1) {
    if (unit < units) columns_of_group<Kind, R, U / 2>(k, a, lda, b, ldb, count, places, unit, units, ldc);
  } else {
    for (; unit < units; ++unit) {
      const int64_t here = count - unit * kUnit;
      column_units<Kind, R, 1, true>(k, a, lda, here > 0 ? b + unit * kUnit : b, ldb, here, places, unit, ldc);
    }
  }
}

template <typename Kind, int Rows>
[[gnu::always_inline]] inline void columns_of_rows(int64_t rows, int64_t k, const typename Kind::Left* a, int64_t lda,
                                                   const typename Kind::Right* b, int64_t ldb, int64_t count,
                                                   const UnitPlaces<typename Kind::Sum>& places, int64_t units,
                                                   int64_t ldc) {
  if (rows == Rows) {
    columns_of_group<Kind, Rows, units_at_once(Rows)>(k, a, lda, b, ldb, count, places, 0, units, ldc);
  } else if constexpr (Rows > 1) {
    columns_of_rows<Kind, Rows - 1>(rows, k, a, lda, b, ldb, count, places, units, ldc);
  }
}

// ---- the product

/// Calls body(first, count) with blocks of nearly the same number of rows, `Most` or fewer.
template <int Most, typename Body>
[[gnu::always_inline]] inline void for_rows(int64_t rows, const Body& body) {
  int64_t first = 0;
  for (int64_t block = ceil_div(rows, Most); block > 0; --block) {
    const int64_t count = ceil_div(rows - first, block);
    body(first, count);
    first += count;
  }
}

/// Weights that are not packed, by the rows of `a`.
template <typename Kind>
struct UnpackedArgs {
  int64_t rows;
  const typename Kind::Left* a;
  int64_t lda;
  const typename Kind::Right* weights;  ///< the first of the panels at hand
  int64_t columns;                      ///< of a group that they have, of `units` units
  int64_t units;
  typename Kind::Sum* c;
  const ProductLayout& layout;

  int64_t ldc() const { return layout.groups * layout.unroll * Simd<typename Kind::Sum>::kUnitLanes; }
  UnitPlaces<typename Kind::Sum> places(int64_t group) const {
    return {c + group * layout.unroll * Simd<typename Kind::Sum>::kUnitLanes, layout.unroll, rows * ldc()};
  }
};

template <typename Kind>
void columns_of_groups(const UnpackedArgs<Kind>& args) {
  for (int64_t group = 0; group < args.layout.groups; ++group) {
    const auto places = args.places(group);
    for_rows<kMostRowsAtOnce>(args.rows, [&](int64_t row, int64_t some) {
      columns_of_rows<Kind, kMostRowsAtOnce>(
          some, args.layout.k, args.a + row * args.lda, args.lda, args.weights + group * args.layout.n, args.layout.ld,
          args.columns, {places.first + row * args.ldc(), places.unroll, places.c_step}, args.units, args.ldc());
    });
  }
}

// ---- columns of the weights in parts of their rows

// A row of the weights is read in a run as long as the panels at hand, and the same columns of the next row are far
// away: products of few columns wait for memory, since the processor foresees long runs only. So the sums of all
// columns go on from part to part of the steps.

/// Steps of a part: beside these, loading and storing the sums is little.
constexpr int64_t kStepsOfColumns = 64;

/// Rows of the left operand at once.
constexpr int kMostRowsOfColumns = kVectorBytes == 64 ? 8 : kVectorBytes == 32 ? 6 : 4;

/// Registers side by side, by so many rows: whole units.
constexpr int strip_of_columns(int rows) {
  if (kVectorBytes == 64) return rows <= 3 ? 8 : rows <= 6 ? 4 : 3;
  if (kVectorBytes == 32) return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
  return 4;
}

/// Asks at each step for so many lines of a row, and goes on to the next row. Nothing has to be there.
template <int Lines>
struct LinesOfRows {
  uintptr_t at, row_bytes;

  [[gnu::always_inline]] void advance() {
#pragma GCC unroll 4
    for (int i = 0; i < Lines; ++i) __builtin_prefetch(reinterpret_cast<const void*>(at + i * target::kCacheLine));
    at += row_bytes;
  }
};

/// Some steps of S registers of columns, from unit `unit` of a group on.
template <typename Kind>
struct ColumnStrip {
  int64_t steps;
  const typename Kind::Left* a;
  int64_t lda;
  const typename Kind::Right* b;  ///< the first of these columns
  int64_t ldb;
  int64_t count;  ///< how many columns there are, if not as many as the registers hold
  UnitPlaces<typename Kind::Sum> places;
  int64_t unit, ldc;
  bool goes_on;                      ///< with the sums that are there
  typename Kind::Sum* copied;        ///< for the columns of all steps, side by side; or null
  const typename Kind::Right* next;  ///< the columns that come next
};

/// Goes on with, or begins, the sums of R rows, and copies the columns.
template <typename Kind, int R, int S, bool Partial, bool Copies, typename Ahead>
[[gnu::noinline]] void column_strip(const ColumnStrip<Kind>& strip, Ahead ahead) {
  using T = typename Kind::Sum;
  constexpr int kLanes = Simd<T>::kLanes;
  T* places[S];
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s)
    places[s] = strip.places.at(strip.unit + s / kRegistersPerUnit) + s % kRegistersPerUnit * kLanes;
  const int64_t lda = strip.lda, ldb = strip.ldb, ldc = strip.ldc;
  Vector<T> sums[R][S];
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s) {
    const T* c = places[s];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r][s] = strip.goes_on ? load(c + r * ldc) : Vector<T>{};
  }
  const typename Kind::Left* a = strip.a;
  const typename Kind::Right* b = strip.b;
  T* copied = strip.copied;
  for (int64_t i = 0; i < strip.steps; ++i, b += ldb, ++a) {
    Vector<T> columns[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const int64_t here = Partial ? smaller(strip.count - s * kLanes, kLanes) : kLanes;
      columns[s] =
          Partial ? here > 0 ? Kind::columns_first(b + s * kLanes, here) : Vector<T>{} : Kind::columns(b + s * kLanes);
      if constexpr (R > 1) keep_in_register(columns[s]);
      if constexpr (Copies) store(copied + s * kLanes, columns[s]);
    }
    ahead.advance();
    if constexpr (Copies) copied += S * kLanes;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector<T> x = splat(Kind::scalar(a + r * lda));
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) sums[r][s] += x * columns[s];
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s) {
    T* c = places[s];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) store(c + r * ldc, sums[r][s]);
  }
}

/// `rows` rows, R or fewer.
template <typename Kind, int R, int S, bool Copies, typename Ahead>
[[gnu::always_inline]] inline void strip_of_rows(int64_t rows, const ColumnStrip<Kind>& strip, Ahead ahead) {
  if (rows != R) {
    if constexpr (R > 1) strip_of_rows<Kind, R - 1, S, Copies>(rows, strip, ahead);
  } else if (strip.count >= S * Simd<typename Kind::Sum>::kLanes) {
    column_strip<Kind, R, S, false, Copies>(strip, ahead);
  } else {
    column_strip<Kind, R, S, true, Copies>(strip, ahead);
  }
}

/// All rows. The first few copy the columns for the others, for which they then lie in one run of the first-level cache
/// and begin with lines.
template <typename Kind, int Rows, int S>
void strip_of_all_rows(int64_t rows, ColumnStrip<Kind> strip) {
  using T = typename Kind::Sum;
  const auto next = reinterpret_cast<uintptr_t>(strip.next);
  const auto row_bytes = static_cast<uintptr_t>(strip.ldb) * sizeof(typename Kind::Right);
  if (rows <= kFewRows) return strip_of_rows<Kind, Rows, S, false>(rows, strip, NothingAhead());
  if (rows <= Rows) return strip_of_rows<Kind, Rows, S, false>(rows, strip, LinesOfRows<4>{next, row_bytes});
  alignas(64) T copied[kStepsOfColumns * S * Simd<T>::kLanes];
  strip.copied = copied;
  for_rows<Rows>(rows, [&](int64_t row, int64_t some) {
    if (row == 0) return strip_of_rows<Kind, Rows, S, true>(some, strip, LinesOfRows<2>{next, row_bytes});
    const ColumnStrip<PlainWeights<T>> other{
        strip.steps,
        strip.a + row * strip.lda,
        strip.lda,
        copied,
        S * Simd<T>::kLanes,
        S * Simd<T>::kLanes,
        {strip.places.first + row * strip.ldc, strip.places.unroll, strip.places.c_step},
        strip.unit,
        strip.ldc,
        strip.goes_on,
        nullptr,
        nullptr};
    if (row > Rows) return strip_of_rows<PlainWeights<T>, Rows, S, false>(some, other, NothingAhead());
    const uintptr_t more = next + 2 * target::kCacheLine;
    strip_of_rows<PlainWeights<T>, Rows, S, false>(some, other, LinesOfRows<2>{more, row_bytes});
  });
}

/// Some steps of a group's columns of the panels at hand.
template <typename Kind>
struct ColumnsPart {
  ColumnStrip<Kind> strip;  ///< the first
  int64_t columns, units;
};

/// The units from `unit` on, S registers at a time, then fewer.
template <typename Kind, int Rows, int S>
void strips_of_part(const ColumnsPart<Kind>& part, int64_t rows, int64_t unit) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes, kUnits = S / kRegistersPerUnit;
  // One unit by itself has few sums: 3 and 1 are 2 and 2.
  for (; unit + kUnits <= part.units && (kUnits != 3 || part.units - unit != 4); unit += kUnits) {
    ColumnStrip<Kind> strip = part.strip;
    strip.count = part.columns - unit * kUnit;
    if (strip.count > 0) strip.b += unit * kUnit;
    strip.unit = unit;
    if (unit + kUnits < part.units) strip.next = strip.b + kUnits * kUnit;
    strip_of_all_rows<Kind, Rows, S>(rows, strip);
  }
  if constexpr (S > kRegistersPerUnit)
    if (unit < part.units) strips_of_part<Kind, Rows, S - kRegistersPerUnit>(part, rows, unit);
}

/// With few rows more registers side by side.
template <typename Kind>
[[gnu::always_inline]] inline void strips_of_rows(const ColumnsPart<Kind>& part, int64_t rows) {
  constexpr int kMost = kMostRowsOfColumns;
  if (rows == 1) return strips_of_part<Kind, 1, strip_of_columns(1)>(part, rows, 0);
  if (rows <= 3) return strips_of_part<Kind, 3, strip_of_columns(3)>(part, rows, 0);
  if (rows <= 6 && kMost > 6) return strips_of_part<Kind, 6, strip_of_columns(6)>(part, rows, 0);
  strips_of_part<Kind, kMost, strip_of_columns(kMost)>(part, rows, 0);
}

template <typename Kind>
void parts_of_columns(const UnpackedArgs<Kind>& args) {
  const int64_t k = args.layout.k;
  int64_t i = 0;
  do {  // once if there are no steps at all
    for (int64_t group = 0; group < args.layout.groups; ++group) {
      const ColumnStrip<Kind> strip{smaller(kStepsOfColumns, k - i),
                                    args.a + i,
                                    args.lda,
                                    args.weights + group * args.layout.n + i * args.layout.ld,
                                    args.layout.ld,
                                    0,
                                    args.places(group),
                                    0,
                                    args.ldc(),
                                    i > 0,
                                    nullptr,
                                    args.weights + group * args.layout.n + (i + kStepsOfColumns) * args.layout.ld};
      const ColumnsPart<Kind> part{strip, args.columns, args.units};
      strips_of_rows<Kind>(part, args.rows);
    }
    i += kStepsOfColumns;
  } while (i < k);
}

template <typename Kind, typename Ahead>
void dots_of_groups(const UnpackedArgs<Kind>& args, Ahead ahead) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes;
  const int64_t k = args.layout.k, steps = steps_of_dots<Kind>(k), ldc = args.ldc();
  for (int64_t group = 0; group < args.layout.groups; ++group)
    for (int64_t unit = 0; unit < args.units; ++unit) {
      const int64_t here = smaller(kUnit, args.columns - unit * kUnit);
      if (here <= 0) continue;  // no stage reads so far
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

/// ProductKernel without panels. With weights that are not transposed it asks for nothing ahead.
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
  if (!layout.transposed) {
    if constexpr (Kind::kIsHalf)
      return columns_of_groups(args);
    else
      return parts_of_columns(args);
  }
  const int64_t steps = units * layout.groups * ceil_div(rows, kMostRowsOfDots) * (layout.k / Kind::kSteps) * 4;
  if (lines == 0 || steps == 0) return dots_of_groups(args, NothingAhead());
  // Not with_run_ahead(), which asks for two lines a step where steps of part of a vector leave slightly too few: that
  // is slower, and half a megabyte more code.
  const int64_t bytes = smaller(ceil_div(lines * target::kCacheLine, steps), target::kCacheLine);
  dots_of_groups(args, RunAhead<1>{reinterpret_cast<uintptr_t>(ahead), LineClock(bytes)});
}

}  // namespace
}  // namespace weft::runtime
