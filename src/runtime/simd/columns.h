#pragma once

#include "runtime/simd/unpacked_operands.h"

namespace weft::runtime {
namespace {

// Products of weights as they lie, [K, N], by columns: the sums have the order and the bits of those on panels
// (tile.h). A row of the weights is read in a run as long as the panels at hand, and the same columns of the next row
// are far away: products of few columns wait for memory, since the processor foresees long runs only. So the sums of
// all columns go on from part to part of the steps.

/// Steps of a part. With this many, loading and storing the sums takes little time.
constexpr int64_t kStepsOfColumns = 64;

/// The most rows of the left operand at once.
constexpr int kMostRowsOfColumns = block_shape(3).rows;

/// The number of registers in a strip for this many rows: whole units.
constexpr int strip_of_columns(int rows) {
  if (kVectorBytes == 64) return rows <= 3 ? 8 : rows <= 6 ? 4 : 3;
  if (kVectorBytes == 32) return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
  return 4;
}

/// Prefetches `Lines` cache lines of a row at each step, then goes on to the next row. The rows may end before: a
/// prefetch of an invalid address does nothing.
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
  int64_t count;  ///< how many columns there are, if fewer than the registers hold
  UnitPlaces<typename Kind::Sum> places;
  int64_t unit, ldc;
  bool goes_on;                ///< whether to continue from the sums that are there
  typename Kind::Sum* copied;  ///< memory for the columns of all steps, side by side; or null
  uintptr_t next;              ///< the address of the next columns

  template <int Lines>
  LinesOfRows<Lines> ahead() const {
    return {next, static_cast<uintptr_t>(ldb) * sizeof(*b)};
  }
};

/// Begins or goes on with the sums of R rows, and copies the columns if Copies.
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
      [[maybe_unused]] const int64_t here = smaller(strip.count - s * kLanes, kLanes);
      if constexpr (!Partial)
        columns[s] = Kind::columns(b + s * kLanes);
      else
        columns[s] = here > 0 ? Kind::columns_first(b + s * kLanes, here) : Vector<T>{};
      if constexpr (R > 1) keep_in_register(columns[s]);
      if constexpr (Copies) store(copied + s * kLanes, columns[s]);
    }
    ahead.advance();
    if constexpr (Copies) copied += S * kLanes;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector<T> x = splat(scalar(a + r * lda));
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

/// column_strip() for `rows` rows, Least to R.
template <typename Kind, int Least, int R, int S, bool Partial, bool Copies, typename Ahead>
[[gnu::always_inline]] inline void strip_of_rows(int64_t rows, const ColumnStrip<Kind>& strip, Ahead ahead) {
  if constexpr (R > Least)
    if (rows < R) return strip_of_rows<Kind, Least, R - 1, S, Partial, Copies>(rows, strip, ahead);
  column_strip<Kind, R, S, Partial, Copies>(strip, ahead);
}

/// Columns in a copy, converted to the sums' type: the same for all types of weights.
template <typename LeftElement, typename T>
struct CopiedColumns {
  using Left = LeftElement;
  using Right = T;
  using Sum = T;

  [[gnu::always_inline]] static Vector<T> columns(const T* p) { return load(p); }
};

/// A strip by more rows than can be taken at once. The first few rows copy the columns for the others, which then read
/// one contiguous run from the first-level cache, aligned to a cache line.
template <typename Kind, int S, bool Partial>
void strip_of_many_rows(int64_t rows, ColumnStrip<Kind> strip) {
  using T = typename Kind::Sum;
  using Copied = CopiedColumns<typename Kind::Left, T>;
  constexpr int kMost = kMostRowsOfColumns, kLeast = (kMost + 1) / 2;  // for_rows() makes two of one more than kMost
  alignas(64) T copied[kStepsOfColumns * S * Simd<T>::kLanes];
  strip.copied = copied;
  const LinesOfRows<2> lines = strip.template ahead<2>();
  for_rows<kMost>(rows, [&](int64_t row, int64_t some) {
    if (row == 0) return strip_of_rows<Kind, kLeast, kMost, S, Partial, true>(some, strip, lines);
    const UnitPlaces<T> places{strip.places.first + row * strip.ldc, strip.places.unroll, strip.places.c_step};
    const ColumnStrip<Copied> other{.steps = strip.steps,
                                    .a = strip.a + row * strip.lda,
                                    .lda = strip.lda,
                                    .b = copied,
                                    .ldb = S * Simd<T>::kLanes,
                                    .count = S * Simd<T>::kLanes,
                                    .places = places,
                                    .unit = strip.unit,
                                    .ldc = strip.ldc,
                                    .goes_on = strip.goes_on,
                                    .copied = nullptr,
                                    .next = 0};
    if (row > kMost) return strip_of_rows<Copied, kLeast, kMost, S, false, false>(some, other, NothingAhead());
    const LinesOfRows<2> more{lines.at + 2 * target::kCacheLine, lines.row_bytes};
    strip_of_rows<Copied, kLeast, kMost, S, false, false>(some, other, more);
  });
}

/// A strip by `rows` rows, Least to Most; by any more if Most is kMostRowsOfColumns.
template <typename Kind, int Least, int Most, int S, bool Partial>
[[gnu::always_inline]] inline void strip_of_all_rows(int64_t rows, const ColumnStrip<Kind>& strip) {
  if constexpr (Most == kMostRowsOfColumns)
    if (rows > Most) return strip_of_many_rows<Kind, S, Partial>(rows, strip);
  if constexpr (Least == 1)  // the processor prefetches these itself
    strip_of_rows<Kind, Least, Most, S, Partial, false>(rows, strip, NothingAhead());
  else
    strip_of_rows<Kind, Least, Most, S, Partial, false>(rows, strip, strip.template ahead<4>());
}

/// The units of a group from `unit` on, of `units` in all, of which the first `whole` have all columns: S registers at
/// a time, then fewer.
template <typename Kind, int Least, int Most, int S>
void strips_of_units(int64_t rows, const ColumnStrip<Kind>& first, int64_t unit, int64_t whole, int64_t units) {
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes, kUnits = S / kRegistersPerUnit;
  // A single unit has too few sums for its latency: four units are taken as 2 and 2, not as 3 and 1.
  for (; unit + kUnits <= whole && (kUnits != 3 || whole - unit != 4); unit += kUnits) {
    ColumnStrip<Kind> strip = first;
    strip.b += unit * kUnit;
    strip.unit = unit;
    if (unit + kUnits < whole) strip.next = reinterpret_cast<uintptr_t>(strip.b + kUnits * kUnit);
    strip_of_all_rows<Kind, Least, Most, S, false>(rows, strip);
  }
  if constexpr (kUnits > 1) {
    if (unit < units)
      strips_of_units<Kind, Least, Most, (kUnits == 3 ? 2 : kUnits / 2) * kRegistersPerUnit>(rows, first, unit, whole,
                                                                                             units);
  } else {
    for (; unit < units; ++unit) {
      ColumnStrip<Kind> strip = first;
      strip.count = first.count - unit * kUnit;
      strip.b += unit * kUnit;
      strip.unit = unit;
      strip_of_all_rows<Kind, Least, Most, S, true>(rows, strip);
    }
  }
}

/// All columns of a group by all rows: the fewer rows, the more registers side by side.
template <typename Kind>
void strips_of_group(int64_t rows, const ColumnStrip<Kind>& first) {
  constexpr int kMost = kMostRowsOfColumns, kSome = kMost > 6 ? 6 : 3;
  constexpr int64_t kUnit = Simd<typename Kind::Sum>::kUnitLanes;
  const int64_t whole = first.count / kUnit, units = ceil_div(first.count, kUnit);  // nothing behind these is read
  if (rows == 0) return;
  if (rows == 1) return strips_of_units<Kind, 1, 1, strip_of_columns(1)>(rows, first, 0, whole, units);
  if (rows <= 3) return strips_of_units<Kind, 1, 3, strip_of_columns(3)>(rows, first, 0, whole, units);
  if constexpr (kSome > 3)
    if (rows <= kSome) return strips_of_units<Kind, 4, kSome, strip_of_columns(kSome)>(rows, first, 0, whole, units);
  strips_of_units<Kind, kSome + 1, kMost, strip_of_columns(kMost)>(rows, first, 0, whole, units);
}

template <typename Kind>
void parts_of_columns(const UnpackedArgs<Kind>& args) {
  const int64_t k = args.layout.k, ld = args.layout.ld;
  int64_t i = 0;
  do {  // once if there are no steps at all
    for (int64_t group = 0; group < args.layout.groups; ++group) {
      const typename Kind::Right* b = args.weights + group * args.layout.n + i * ld;
      strips_of_group<Kind>(args.rows, {.steps = smaller(kStepsOfColumns, k - i),
                                        .a = args.a + i,
                                        .lda = args.lda,
                                        .b = b,
                                        .ldb = ld,
                                        .count = args.columns,
                                        .places = args.places(group),
                                        .unit = 0,
                                        .ldc = args.ldc(),
                                        .goes_on = i > 0,
                                        .copied = nullptr,
                                        .next = reinterpret_cast<uintptr_t>(b) +
                                                static_cast<uintptr_t>(kStepsOfColumns * ld) * sizeof(*b)});
    }
    i += kStepsOfColumns;
  } while (i < k);
}

}  // namespace
}  // namespace weft::runtime
