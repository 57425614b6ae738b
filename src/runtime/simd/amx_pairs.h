#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/pairs.h"
#include "runtime/simd/tile_config.h"

namespace weft::runtime {
namespace {

// Products of bf16 with bf16 weights in pairs (pairs.h) on the tile unit. A unit of a panel, 16 pairs of steps by 16
// columns, is a tile as it lies. `Unit`: AmxUnit or EmulatedAmxUnit.
//
// Few rows go through tiles as well: a row's sums must not depend on the rows beside it, and no other instruction sums
// in the unit's order. It costs nothing: one row takes as long as 16, no longer than one row on vectors (Granite
// Rapids, weights of 512 by 1536 from the second-level cache: 14 us, on vectors 20).

constexpr int kToSecondLevel = 2;                   ///< of __builtin_prefetch
constexpr int64_t kTileSteps = 2 * kTileRows;       ///< of a tile of the left operand
constexpr int64_t kStepsOfPart = 256;               ///< of 64 columns 32 KB: most of a first-level cache
constexpr int64_t kRowsInParts = 4 * kRowsOfTiles;  ///< rows that one call should have, if it works in parts
constexpr int64_t kTilePairs = kTileRows * Simd<float>::kUnitLanes;  ///< in a tile of a panel

/// A block of the product: rows of one or two tiles by columns of some units. Operands behind the last whole tile of
/// steps are copied to tiles that zeros fill up: what lies behind them in memory may be anything, or may not be there.
struct TileBlock {
  int64_t k;
  const uint16_t* a;
  int64_t lda;
  const uint16_t* last_a;  ///< [rows][kTileSteps]
  const uint32_t* b[4];    ///< of each unit
  int64_t b_step;          ///< pairs
  const uint32_t* last_b[4];
  float* c[4];
  int64_t ldc;
  bool accumulate;
  uintptr_t ahead;  ///< memory to prefetch, as for a ProductKernel,
  int64_t lines;    ///< and the number of its lines to prefetch at each tile of steps
};

/// Calls body<0>(), body<1>() and so on: instructions take tile numbers as constants.
template <int Count, int First = 0, typename Body>
[[gnu::always_inline]] inline void for_tiles(const Body& body) {
  if constexpr (First < Count) {
    body.template operator()<First>();
    for_tiles<Count, First + 1>(body);
  }
}

/// Adds one tile of steps to all sums of the block. The tile is `moved` bytes from the units' begin.
template <typename Unit, int M, int N>
[[gnu::always_inline]] inline void add_tiles(const uint16_t* a, int64_t a_bytes, const uint32_t* const* b,
                                             int64_t moved, int64_t b_bytes) {
  using T = Tiles<M>;
  for_tiles<M>([&]<int Row>() {
    Unit::template load<T::left(Row)>(reinterpret_cast<const char*>(a) + Row * kTileRows * a_bytes, a_bytes);
  });
  for_tiles<N>([&]<int Column>() {
    Unit::template load<T::right(Column)>(reinterpret_cast<const char*>(b[Column]) + moved, b_bytes);
    for_tiles<M>([&]<int Row>() { Unit::template multiply<T::result(Row, Column), T::left(Row), T::right(Column)>(); });
  });
}

template <typename Unit, int M, int N>
[[gnu::noinline]] void tile_block(const TileBlock& block) {
  using T = Tiles<M>;
  const int64_t ldc = block.ldc, c_bytes = ldc * 4, a_bytes = block.lda * 2, b_bytes = block.b_step * 4;
  const bool accumulate = block.accumulate;
  for_tiles<M>([&]<int Row>() {
    for_tiles<N>([&]<int Column>() {
      if (accumulate)
        Unit::template load<T::result(Row, Column)>(block.c[Column] + Row * kTileRows * ldc, c_bytes);
      else
        Unit::template zero<T::result(Row, Column)>();
    });
  });
  const uint16_t* a = block.a;
  uintptr_t ahead = block.ahead;
  int64_t moved = 0;  // along the units
  for (int64_t left = block.k / kTileSteps; left > 0; --left, a += kTileSteps, moved += kTileRows * b_bytes) {
    for (int64_t i = 0; i < block.lines; ++i, ahead += target::kCacheLine)
      __builtin_prefetch(reinterpret_cast<const void*>(ahead), 0, kToSecondLevel);
    add_tiles<Unit, M, N>(a, a_bytes, block.b, moved, b_bytes);
  }
  if (block.k % kTileSteps != 0) add_tiles<Unit, M, N>(block.last_a, kTileBytes, block.last_b, 0, kTileBytes);
  for_tiles<M>([&]<int Row>() {
    for_tiles<N>([&]<int Column>() {
      Unit::template store<T::result(Row, Column)>(block.c[Column] + Row * kTileRows * ldc, c_bytes);
    });
  });
}

/// Copies the last `steps` < kTileSteps elements of each row of the left operand, followed by zeros.
inline void fill_last_left(const uint16_t* a, int64_t lda, int64_t rows, int64_t steps, uint16_t* to) {
  for (int64_t r = 0; r < rows; ++r, a += lda, to += kTileSteps) {
#if defined(__AVX512BW__)
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << steps) - 1), a));
#else
    for (int64_t i = 0; i < kTileSteps; ++i) to[i] = i < steps ? a[i] : 0;
#endif
  }
}

/// Copies `pairs` rows of a unit, followed by zeros.
inline void fill_last_right(const uint32_t* b, int64_t b_step, int64_t pairs, uint32_t* to) {
  constexpr int64_t kLanes = Simd<float>::kUnitLanes;
  for (int64_t i = 0; i < kTileRows; ++i, b += b_step, to += kLanes) {
    if (i < pairs)
      __builtin_memcpy(to, b, kTileBytes);
    else
      __builtin_memset(to, 0, kTileBytes);
  }
}

struct TileLeft {
  using Left = uint16_t;
};

/// Rows row..row+rows-1, of M tiles, by the units of all panels. `lines`: how many to prefetch at each tile of steps.
template <typename Unit, int Units, int M>
void tile_rows(const PairsArgs<TileLeft>& args, int64_t row, int64_t rows, uintptr_t ahead, int64_t lines) {
  constexpr int kColumns = Tiles<M>::kColumns;
  constexpr int64_t kLanes = Simd<float>::kUnitLanes, kWidth = Units * kLanes;
  alignas(64) uint16_t last_a[M * kTileRows * kTileSteps];
  alignas(64) uint32_t last_b[kColumns * kTilePairs];
  const int64_t last = args.k % kTileSteps, whole = args.k - last, units = args.units;
  TileBlock block{.k = args.k,
                  .a = args.a + row * args.lda,
                  .lda = args.lda,
                  .last_a = last_a,
                  .b = {},
                  .b_step = kWidth,
                  .last_b = {},
                  .c = {},
                  .ldc = args.ldc,
                  .accumulate = args.accumulate,
                  .ahead = ahead,
                  .lines = lines};
  if (last > 0) fill_last_left(block.a + whole, args.lda, rows, last, last_a);
  int64_t unit = 0;
  for (int64_t blocks = ceil_div(units, kColumns); blocks > 0; --blocks) {
    const int64_t count = ceil_div(units - unit, blocks);
    for (int64_t n = 0; n < count; ++n, ++unit) {
      const int64_t panel = unit / Units, column = unit % Units * kLanes;
      block.b[n] = args.panels + panel * args.panel_size + column;
      block.c[n] = args.c + row * args.ldc + panel * args.c_step + column;
      block.last_b[n] = last_b + n * kTilePairs;
      if (last > 0)
        fill_last_right(block.b[n] + whole / 2 * kWidth, kWidth, ceil_div(last, 2), last_b + n * kTilePairs);
    }
    for_tiles<kColumns>([&]<int N>() {
      if (count == N + 1) tile_block<Unit, M, N + 1>(block);
    });
    block.ahead += static_cast<uintptr_t>(lines * (args.k / kTileSteps) * target::kCacheLine);
  }
}

/// All rows, and `k` of the steps in the panels. The tiles' shapes are set where they change.
template <typename Unit, int Units>
void tile_all_rows(const PairsArgs<TileLeft>& args) {
  const int64_t blocks = ceil_div(args.rows, kRowsOfTiles) * ceil_div(args.units, Tiles<2>::kColumns);
  const int64_t turns = blocks * (args.k / kTileSteps);  // about: a block of few rows has more columns
  const int64_t lines = turns > 0 ? ceil_div(args.lines, turns) : 0;
  auto ahead = reinterpret_cast<uintptr_t>(args.ahead);
  int64_t shaped = 0;
  for (int64_t row = 0; row < args.rows; row += kRowsOfTiles) {
    const int64_t here = smaller(args.rows - row, kRowsOfTiles);
    if (here != shaped) Unit::configure(kTileConfigs.of[here]);
    shaped = here;
    if (here > kTileRows)
      tile_rows<Unit, Units, 2>(args, row, here, ahead, lines);
    else
      tile_rows<Unit, Units, 1>(args, row, here, ahead, lines);
    ahead += static_cast<uintptr_t>(lines * turns / ceil_div(args.rows, kRowsOfTiles) * target::kCacheLine);
  }
}

/// An AheadKernel. It leaves the tiles configured, so that the next call finds their shapes set (PairKernels::release).
///
/// With many rows the steps are taken in parts, so that a part of a panel is still in the first-level cache when the
/// next rows need it. Between the parts sums are in c, as f32 like in the tiles, so the bits stay the same.
template <typename Unit, int Units>
void tile_unit_panels(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panels, int64_t units, void* c,
                      int64_t ldc, int64_t c_step, int64_t accumulate, const void* ahead, int64_t lines) {
  stand_in(k, a, lda, panels, c, ldc);
  const PairsArgs<TileLeft> all{rows,
                                k,
                                static_cast<const uint16_t*>(a),
                                lda,
                                static_cast<const uint32_t*>(panels),
                                ceil_div(k, 2) * Units * Simd<float>::kUnitLanes,
                                units,
                                static_cast<float*>(c),
                                ldc,
                                c_step,
                                accumulate != 0,
                                ahead,
                                lines};
  if (rows <= kRowsOfTiles || k <= kStepsOfPart) return tile_all_rows<Unit, Units>(all);
  const int64_t count = ceil_div(units, Units);
  const int64_t parts = ceil_div(k, kStepsOfPart), lines_of_part = ceil_div(lines, parts * count);
  auto asked = reinterpret_cast<uintptr_t>(ahead);
  for (int64_t panel = 0; panel < count; ++panel)
    for (int64_t from = 0; from < k; from += kStepsOfPart) {
      PairsArgs<TileLeft> part = all;
      part.k = smaller(kStepsOfPart, k - from);
      part.a += from;
      part.panels += panel * all.panel_size + from / 2 * Units * Simd<float>::kUnitLanes;
      part.units = smaller(units - panel * Units, Units);
      part.c += panel * c_step;
      part.accumulate = all.accumulate || from > 0;
      part.ahead = reinterpret_cast<const void*>(asked);
      part.lines = lines_of_part;
      asked += static_cast<uintptr_t>(lines_of_part * target::kCacheLine);
      tile_all_rows<Unit, Units>(part);
    }
}

/// For half_table(). Products without panels are those of `kVectors`.
template <typename Unit, const PairKernels& kVectors>
struct TileHalves {
  template <int Units>
  static constexpr AheadKernel kPanels = tile_unit_panels<Unit, Units>;
  static constexpr UnpackedKernel kUnpacked = unpacked_elsewhere<kVectors>;
  static constexpr int64_t kRows = kRowsOfTiles;
  static constexpr int64_t kOuterPart = 512, kOuterPanels = 6;
  static int64_t rows_at_once(int64_t k) { return k > kStepsOfPart ? kRowsInParts : kRows; }
  static constexpr void (*kRelease)() = Unit::release;
};

}  // namespace
}  // namespace weft::runtime
