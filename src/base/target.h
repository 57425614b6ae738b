#pragma once

#include <cstdint>

#include "base/dtype.h"

/// The engine's model of the processor: the facts that layouts depend on, and the costs that choices depend on. Each is
/// stated once, here. Costs are in multiply-adds of f32, of which a core does about 25 a nanosecond (measured on AMD
/// Zen 4 and Intel Sapphire Rapids: 20 to 30). A cost needs to be right only within a factor of two: close to the point
/// where a choice flips, both sides cost about the same.
namespace weft::target {

// ---- layouts

/// Bytes of a cache line. Memory that two threads write is at least this far apart.
inline constexpr int64_t kCacheLine = 64;

/// Bytes of a unit, what one micro-kernel step reads of a panel of weights: one cache line, one vector of AVX-512, two
/// of AVX2. The same for every ISA, so that packed weights are the same, too.
inline constexpr int64_t kUnit = kCacheLine;

/// Elements of one unit.
constexpr int64_t lanes(DType dtype) { return dtype == DType::kF64 ? kUnit / 8 : kUnit / 4; }

/// Units side by side in the widest panel: its accumulators for six rows fill the 32 registers of AVX-512.
inline constexpr int64_t kMaxPanelUnits = 4;

// ---- costs

/// The work of an elementwise op on one element: a load, a store and a few operations, beside 1 for a multiply-add.
inline constexpr int64_t kWorkPerElement = 4;

/// The work in the time of a barrier among threads that spin: 0.2 to 1 us.
inline constexpr int64_t kBarrierWork = 1 << 14;

/// How much work a core does in the time in which it reads one byte that another core has just written: a cache line
/// takes 5 to 10 ns where many are read. (LSTM of 128 units, two threads of a Zen 4, columns and rows shared: B15 1.36
/// and 1.45 ms, B45 4.8 and 4.4, B107 10.6 and 9.5. Where the rows are odd in number, columns share them more evenly,
/// by half a row.)
inline constexpr int64_t kWorkPerCrossingByte = 4;

/// Independent scans run side by side, a thread each, if that takes less than this fraction of their time one after the
/// other. The gain has to be that large because the data of all of them is then in memory at the same time.
inline constexpr double kGainSideBySide = 7.0 / 8;

/// The work in the time that another thread takes to wake up, 2 to 5 us. Less work than this is done by one thread.
inline constexpr int64_t kWakeWork = 1 << 16;

/// The work of one core in 10 to 20 ms, a few time slices of a core that other threads want too. Splitting less work
/// than this would save less than the threads lose when they wait for a core at the end of each stage. (Zen 4, two
/// cores with a busy program on each, two threads and one: GRU B32 T128 H64, forward, 15 and 3.7 ms, training 49 and 9;
/// LSTM B64 T64 H256, forward, 59 and 65.)
inline constexpr int64_t kSliceWork = 1 << 29;

/// While weights arrive that no core's own cache holds, at least this many rows are multiplied by them. In a window
/// with fewer rows a thread would wait for the weights. (How many rows take as long as the arrival differs from
/// processor to processor: rows_while_streaming in runtime/kernels/kernels.h.)
inline constexpr int64_t kLeastRowsOfWindow = 4;

/// Reading weights from a core's own cache takes as long as multiplying this many further rows by them. (A Xeon with
/// AVX-512 and 2 MiB of such cache, one thread, GRU and LSTM of 128 and 256 units: a step of B rows takes as long as B
/// + 2 rows of a large product.)
inline constexpr double kRowsWhileReading = 2;

/// How many rows of the left operand are multiplied at once by dot products along rows of the weights. `wide`: with 32
/// vectors of 64 bytes.
constexpr int64_t rows_of_dots(bool wide) { return wide ? 6 : 3; }

/// A dot product takes a row in parts of this many bytes, so that four rows of the weights and the rows of the left
/// operand that they are multiplied with stay in the first-level cache. (16 rows by 6964 rows of 1741, an Intel Xeon:
/// 8.5 ms with whole rows, 6.6 with parts.) Where a row is divided depends on its length alone.
inline constexpr int64_t kBytesOfDots = 4096;

/// Weights are packed if they are multiplied by more rows than this. Packing reads and writes all of them. In return
/// products on panels are faster. Dot products along transposed rows of k weights have to sum a vector's lanes, whose
/// share falls as the rows grow longer. Weights that are not transposed are read in parts of their rows, and panels in
/// one long run of memory at each step. `bytes`: the bytes of k weights. `on_the_way`: products can pack panel by
/// panel, and read each panel from the cache (runtime/kernels/packs.h). `wide`: vectors of 64 bytes, with which
/// products on panels gain most, so that fewer rows pay for packing.
///
/// Transposed, one row at a time (AVX-512, Zen 5): f32 with k 256, 512, 1024 from 14, 22 and 50 rows on, bf16 from 8,
/// 15 and 32. On the way, all rows at once (AVX2, Zen 3, f32): with k 256 from 28 rows on, with 512 from 50; with 1024
/// and 48 rows products without take 0.85 of the time, with 24 rows 0.7. The same with AVX-512 (Xeon): with k 64 from 8
/// rows on, with 128 from 18, with 256, 512 and 1024 from 32; rows of weights that begin within cache lines cost dot
/// products more, and more so those that these go over in parts: with 100, 333, 777 and 1093 from 12 to 20, with 1741
/// from 10 to 14. Not transposed (Xeon), all rows at once, on the way: from 48 to 100; in 4 to 32 steps of 1 to 8 rows,
/// packed before: from 24 to 32, with AVX2 from 16 to 24.
constexpr int64_t rows_worth_packing(int64_t bytes, bool transposed, bool on_the_way, bool wide) {
  if (!transposed) return on_the_way ? 48 : wide ? 24 : 16;
  if (!on_the_way || !wide) return 3 + bytes / 64;
  const int64_t rows = 1 + bytes / 32, most = bytes % kCacheLine == 0 ? 24 : bytes > kBytesOfDots ? 12 : 18;
  return rows < most ? rows : most;
}

/// The same for bf16 weights that are not transposed. Unpacked, they are widened as they are read; packed in panels,
/// they are multiplied by the processor's instructions for pairs where it has such instructions. (Without such
/// instructions packing pays from 16 to 24 rows on.)
inline constexpr int64_t kHalfRowsWorthPacking = 8;

/// Products whose columns fill at most half a unit are dot products along the rows of transposed weights, if these rows
/// have at least this many bytes. On panels most lanes would multiply zeros, while summing lanes costs little beside
/// such rows.
inline constexpr int64_t kBytesOfNarrowRows = 2 * kUnit;

/// Weights are packed on the way if products go over them at most this often. Packing a panel at a time takes less time
/// than packing before all products, since panels stay in the cache, but it is repeated each time. (Zen 5, 64 rows of
/// 600 to 1024: a cell's step takes 0.77 to 0.93 of the time with a pack before it.)
inline constexpr int64_t kMostPacksOnTheWay = 2;

/// Packing weights takes about as long as multiplying this many rows by them.
inline constexpr int64_t kRowsWhilePacking = 16;

/// With more rows than this, weights get a pack of their own. The products may then run in windows of steps
/// (runtime/plan/window.h), and weights that are not transposed are read in longer runs.
inline constexpr int64_t kMostRowsOnTheWay = 16 * kRowsWhilePacking;

/// With more rows than this, weights get a pack of their own even where there are no windows. Packing is then a small
/// part of the work in any case, and products with such a pack take rows in chunks that stay in the core's own cache.
/// (Xeon with AVX-512, two threads, packed on the way and before: 512 rows by 4096 rows of 1024 15.8 and 18.2 ms; 2048
/// by 2048 of 512 17.9 and 14.6.)
inline constexpr int64_t kMostRowsWithoutWindows = 64 * kRowsWhilePacking;

/// Products of fewer rows than this at once are slower per row: weights are read from the cache for every few rows, and
/// the last block of rows of the micro-kernel may be small.
inline constexpr int64_t kRowsOfWindow = 16;

/// While this many rows are multiplied by weights, the next weights arrive from the shared cache, if they are
/// prefetched: four bytes for 64 multiply-adds, at 60 to 120 multiply-adds a nanosecond, are 4 to 8 GB/s, and a core
/// reads 29 to 90. (Zen 4, one thread, LSTM, forward, windows of 64 rows instead of none: B16 T128 H256 22.9 and 21.1
/// ms, B16 T64 H512 42.9 and 41.3, B64 T64 H512 164 and 159.)
inline constexpr int64_t kRowsBehindWeights = 64;

/// The same for weights that the shared cache may not keep from window to window, since the scan's own weights go
/// through it too. They are then read from memory each time, as the stacks would be without windows.
inline constexpr int64_t kRowsBehindMemory = 384;

/// Fewer do if the shared cache has no room for more. (Zen 1, 8 MB for two cores, LSTM B64 T64 H512: windows of 192 to
/// 384 rows take what the stack as a whole takes, within 1 %, and 28 of its 63 MB less.)
inline constexpr int64_t kLeastRowsBehindMemory = 192;

/// Steps of at most this many rows wait for their weights. With 8-bit weights such steps therefore read the bytes
/// themselves, not panels of f32, if the processor has fast multiplications of bytes (runtime/kernels/packs.h).
inline constexpr int64_t kMostRowsOfBytes = 2;

/// The estimated number of steps of a while loop: nobody knows it before the loop has run.
inline constexpr int64_t kStepsOfWhile = 16;

/// The estimate of a size that only the call knows, for comparing sizes before the call.
inline constexpr int64_t kTypicalSize = 32;

}  // namespace weft::target
