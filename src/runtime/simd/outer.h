#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/simd/pack.h"
#include "runtime/simd/tile.h"

namespace weft::runtime {
namespace {

/// c[m][n] for a part of m at a time, over chunks of rows. The chunk's part of `a` is laid out as blocks
/// [kOuterChunk][R], in the second-level cache. One panel of `b` at a time, or several panels if they have few rows, is
/// laid out as [rows][width], in the first-level cache. Each register block then runs down the chunk, and prefetches
/// some lines of the next chunk on its way. (128 rows: a panel of 24 KB. With 256 rows, whose panels fill a first-level
/// cache of 48 KB, 129 GF/s became 171 for 25,600 rows, 512 by 128, on Granite Rapids.)
constexpr int64_t kOuterChunk = 128;
constexpr int kOuterUnits = 3;
constexpr int kOuterRows = block_shape(kOuterUnits).rows;
/// Half of the second-level cache of processors with such vectors. (AVX2, Zen 3, whose cache is 512 KB: 128 rows, 4408
/// by 1102, 72 GF/s with parts of 512 KB, 84 with 256.)
constexpr int64_t kOuterPartBytes = int64_t{kVectorBytes == 64 ? 512 : 256} << 10;

template <typename T>
struct OuterSizes {
  /// The number of columns of `a` in a part: a multiple of a block's.
  static constexpr int64_t kPart = kOuterPartBytes / (kOuterChunk * int64_t{sizeof(T)}) / kOuterRows * kOuterRows;
  static constexpr int64_t kPanel = kOuterUnits * Simd<T>::kUnitLanes;  ///< columns of b in one panel
  static constexpr int64_t kScratchBytes = (kPart + kPanel) * kOuterChunk * int64_t{sizeof(T)};
};

/// If a packed operand would be used fewer times than this, packing costs more than it gains: it is read in place.
constexpr int64_t kPanelsWorthPackingA = 4;
constexpr int64_t kBlocksWorthPackingB = 6;

/// Panels of few rows are small. So several panels are taken at once: as many as fill half of the first-level cache. A
/// block's rows of c are then written in runs as long as these panels together. (8 rows, 2048 by 512, AVX2, Zen 3: 18
/// GF/s with one panel at a time, 33 with several; the cache misses of its rows bound the speed of a result that is
/// written once.)
constexpr int64_t kPanelsBytes = int64_t{16} << 10;

template <typename T>
constexpr int64_t panels_together(int64_t rows) {
  const int64_t bytes = rows * OuterSizes<T>::kPanel * int64_t{sizeof(T)};
  return bytes < kPanelsBytes ? kPanelsBytes / bytes : 1;
}

/// Columns of b: packed as panels [rows][width], one after the other, or unpacked.
template <typename T>
struct Panels {
  const T* first;
  bool packed;
};

template <typename T>
struct OuterChunk {
  const T* a;  ///< first row of the chunk
  const T* b;
  int64_t lda, ldb, rows;
  int64_t next_rows;  ///< the number of rows of the next chunk in memory; 0 in the last chunk
  bool accumulate;
};

/// Prefetches the parts of a and b that the next chunk reads, first a, then b.
template <typename T>
struct NextChunk {
  RowsAhead a, b;
  int64_t blocks_of_a;  ///< the first blocks prefetch lines of a, this many; the others lines of b

  NextChunk(const OuterChunk<T>& chunk, int64_t m, int64_t count, int64_t n0, int64_t n1, int64_t blocks) {
    const int64_t rows = chunk.next_rows, lines_a = count, lines_b = n1 - n0;  // in proportion to their numbers
    blocks_of_a = blocks * lines_a / (lines_a + lines_b);
    a = RowsAhead::over(chunk.a + chunk.rows * chunk.lda + m, rows, count, chunk.lda, blocks_of_a * chunk.rows);
    b = RowsAhead::over(chunk.b + chunk.rows * chunk.ldb + n0, rows, n1 - n0, chunk.ldb,
                        (blocks - blocks_of_a) * chunk.rows);
  }

  RowsAhead& now() { return blocks_of_a-- > 0 ? a : b; }
};

/// The number of columns of `a` in one register block. Blocks are nearly equal, so that no slow block of a column or
/// two is left over.
inline int64_t columns_of_block(int64_t count) { return ceil_div(count, ceil_div(count, kOuterRows)); }

/// Packs columns m..m+count-1 of the chunk in register blocks, 16 rows at a time, so that whole cache lines are used.
template <typename T>
void pack_part(const OuterChunk<T>& chunk, int64_t m, int64_t count, T* packed) {
  constexpr int64_t kStep = 16;
  const int64_t block_columns = columns_of_block(count);
  for (int64_t r0 = 0; r0 < chunk.rows; r0 += kStep) {
    const int64_t r1 = smaller(r0 + kStep, chunk.rows);
    for (int64_t i = 0; i < count; i += block_columns) {
      T* block = packed + i / block_columns * kOuterRows * kOuterChunk;
      const T* source = chunk.a + m + i;
      const int64_t columns = smaller(block_columns, count - i);
      if (columns == kOuterRows) {
        for (int64_t r = r0; r < r1; ++r)
          __builtin_memcpy(block + r * kOuterRows, source + r * chunk.lda, kOuterRows * sizeof(T));
      } else {
        for (int64_t r = r0; r < r1; ++r)
          for (int64_t j = 0; j < columns; ++j) block[r * kOuterRows + j] = source[r * chunk.lda + j];
      }
    }
  }
}

/// Columns n..n+count-1 of the chunk as [rows][width], zeros from column `count` on.
template <typename T>
void pack_panel(const OuterChunk<T>& chunk, int64_t n, int64_t count, int64_t width, T* panel) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t columns = count - j < 0 ? 0 : smaller(count - j, kLanes);
    copy_strip(chunk.b + n + (columns > 0 ? j : 0), chunk.ldb, columns, chunk.rows, panel + j, width);
  }
}

/// One register block of c, Units wide. Only `columns` of its columns exist; if they are fewer, the block goes through
/// a tile on the stack.
template <typename T, int Units>
void outer_block(const OuterChunk<T>& chunk, LeftOperand<T> left, const T* b, int64_t b_step, int64_t rows,
                 int64_t columns, T* c, int64_t ldc, RowsAhead& next) {
  constexpr int64_t kWidth = Units * Simd<T>::kUnitLanes;
  constexpr int kStrip = kVectorBytes == 64 ? Units : block_shape(Units).strip;
  alignas(64) T tile[kOuterRows * kWidth];
  T* target = c;
  int64_t target_step = ldc;
  if (columns < kWidth) {
    target = tile;
    target_step = kWidth;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < kWidth; ++j)
        tile[i * kWidth + j] = chunk.accumulate && j < columns ? c[i * ldc + j] : T(0);
  }
  for (int64_t strip = 0; strip < kWidth; strip += kStrip * Simd<T>::kLanes)
    block_of_rows<T, kStrip, kOuterRows, false>(rows, chunk.rows, left, b + strip, b_step, target + strip, target_step,
                                                chunk.accumulate ? Onto::kSum : Onto::kNothing, next);
  if (columns < kWidth)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) c[i * ldc + j] = tile[i * kWidth + j];
}

/// One register block by several panels, with the columns n..n+columns-1. The panels begin at b, one after the other.
template <typename T>
[[gnu::always_inline]] inline void outer_blocks(const OuterChunk<T>& chunk, LeftOperand<T> left, const Panels<T>& b,
                                                int64_t rows, int64_t columns, T* c, int64_t ldc, RowsAhead& next) {
  constexpr int64_t kUnit = Simd<T>::kUnitLanes, kPanel = OuterSizes<T>::kPanel;
  for (int64_t j = 0; j < columns; j += kPanel) {
    const int64_t some = smaller(kPanel, columns - j), units = ceil_div(some, kUnit);
    const T* panel = b.first + (b.packed ? j * chunk.rows : j);
    const int64_t step = b.packed ? units * kUnit : chunk.ldb;
    if (units == 3) outer_block<T, 3>(chunk, left, panel, step, rows, some, c + j, ldc, next);
    if (units == 2) outer_block<T, 2>(chunk, left, panel, step, rows, some, c + j, ldc, next);
    if (units == 1) outer_block<T, 1>(chunk, left, panel, step, rows, some, c + j, ldc, next);
  }
}

/// Whether blocks of the chunk prefetch the rows of c that the next block will write. A block of few rows is done
/// before the lines arrive that it prefetches for itself (42 rows by 4352 by 1088 from the last-level cache of an Intel
/// Xeon, 3.2 ms without the prefetch, 2.9 with it). Only for the last chunk, since the others prefetch the next chunk;
/// and only if a line a step is enough.
template <typename T>
bool asks_for_c(const OuterChunk<T>& chunk) {
  constexpr int64_t kLines = kOuterRows * OuterSizes<T>::kPanel * int64_t{sizeof(T)} / target::kCacheLine;
  return chunk.next_rows == 0 && chunk.rows >= kLines;
}

template <typename T>
void outer_part(const OuterChunk<T>& chunk, int64_t m, int64_t count, int64_t n0, int64_t n1, T* scratch, T* c,
                int64_t ldc) {
  constexpr int64_t kUnit = Simd<T>::kUnitLanes, kPanel = OuterSizes<T>::kPanel;
  T* panels = scratch;
  T* part = scratch + kPanel * kOuterChunk;
  const T* packed = nullptr;
  if (ceil_div(n1 - n0, kPanel) >= kPanelsWorthPackingA) {
    pack_part(chunk, m, count, part);
    packed = part;
  }
  const bool packs = count >= kBlocksWorthPackingB * kOuterRows;
  const int64_t width = panels_together<T>(chunk.rows) * kPanel, block_columns = columns_of_block(count);
  NextChunk<T> next(chunk, m, count, n0, n1, ceil_div(count, block_columns) * ceil_div(n1 - n0, kPanel));
  const bool asks = asks_for_c(chunk);
  auto behind = [&](int64_t i, int64_t n, int64_t times) {  // the block at (i, n)
    i += block_columns;
    if (i >= count) i = 0, n += width;
    if (n >= n1) return RowsAhead{};
    return RowsAhead::over(c + (m + i) * ldc + n, smaller(block_columns, count - i), smaller(width, n1 - n), ldc,
                           times);
  };
  for (int64_t n = n0; n < n1; n += width) {
    const int64_t columns = smaller(width, n1 - n);
    // Columns that don't fill their units can't be read in place: there is no memory after them.
    const Panels<T> b = packs || columns % kUnit != 0 ? Panels<T>{panels, true} : Panels<T>{chunk.b + n, false};
    for (int64_t j = 0; b.packed && j < columns; j += kPanel) {
      const int64_t some = smaller(kPanel, columns - j);
      pack_panel(chunk, n + j, some, ceil_div(some, kUnit) * kUnit, panels + j * chunk.rows);
    }
    for (int64_t i = 0; i < count; i += block_columns) {
      const LeftOperand<T> left =
          packed ? LeftOperand<T>{packed + i / block_columns * kOuterRows * kOuterChunk, 1, kOuterRows}
                 : LeftOperand<T>{chunk.a + m + i, 1, chunk.lda};
      RowsAhead of_c = asks ? behind(i, n, chunk.rows * ceil_div(columns, kPanel)) : RowsAhead{};
      outer_blocks<T>(chunk, left, b, smaller(block_columns, count - i), columns, c + (m + i) * ldc + n, ldc,
                      asks ? of_c : next.now());
    }
  }
}

template <typename T>
void outer(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* scratch) {
  T* c = static_cast<T*>(args.c);
  if (args.rows == 0) {
    for (int64_t m = m0; m < m1; ++m)
      for (int64_t n = n0; n < n1; ++n) c[m * args.ldc + n] = T(0);
  }
  if (n0 >= n1) return;
  for (int64_t m = m0; m < m1; m += OuterSizes<T>::kPart) {
    for (int64_t r = 0; r < args.rows; r += kOuterChunk) {
      const int64_t rows = smaller(kOuterChunk, args.rows - r);
      const OuterChunk<T> chunk{.a = static_cast<const T*>(args.a) + r * args.lda,
                                .b = static_cast<const T*>(args.b) + r * args.ldb,
                                .lda = args.lda,
                                .ldb = args.ldb,
                                .rows = rows,
                                .next_rows = smaller(kOuterChunk, args.rows - r - rows),
                                .accumulate = r > 0};
      outer_part(chunk, m, smaller(OuterSizes<T>::kPart, m1 - m), n0, n1, static_cast<T*>(scratch), c, args.ldc);
    }
  }
}

}  // namespace
}  // namespace weft::runtime
