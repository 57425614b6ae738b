#pragma once

#include "runtime/simd/f16.h"
#include "runtime/simd/outer.h"

namespace weft::runtime {
namespace {

/// How many rows, and at most how many columns, of c keep their f32 sums in the core's own cache until these are
/// rounded.
constexpr int64_t kRoundedRows = 128, kRoundedColumns = 6 * OuterSizes<float>::kPanel;

struct RoundedOuterScratch {
  alignas(64) float tile[kRoundedRows * kRoundedColumns];
  alignas(64) char outer[OuterSizes<float>::kScratchBytes];
};

inline void round_row(const float* from, int64_t count, F16* to) {
  constexpr int64_t kLanes = Simd<float>::kLanes;
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) store(to + j, load(from + j));
  if (j == count) return;
  F16 last[kLanes];
  store(last, load_first(from + j, count - j));
  __builtin_memcpy(to + j, last, static_cast<uint64_t>(count - j) * sizeof(F16));
}

/// OuterKernel of f32 whose result is f16: no f32 result is written to memory and read again.
inline void rounded_outer(const OuterArgs& args, int64_t m0, int64_t m1, int64_t n0, int64_t n1, void* memory) {
  auto& scratch = *static_cast<RoundedOuterScratch*>(memory);
  const auto *a = static_cast<const float*>(args.a), *b = static_cast<const float*>(args.b);
  auto* c = static_cast<F16*>(args.c);
  if (n0 >= n1) return;
  // Tiles have about equally many columns, so that the last one isn't tiny.
  constexpr int64_t kUnit = Simd<float>::kUnitLanes;
  const int64_t tiles = ceil_div(n1 - n0, kRoundedColumns), step = ceil_div(ceil_div(n1 - n0, tiles), kUnit) * kUnit;
  for (int64_t n = n0; n < n1; n += step)
    for (int64_t m = m0; m < m1; m += kRoundedRows) {
      const int64_t rows = smaller(kRoundedRows, m1 - m), columns = smaller(step, n1 - n);
      const OuterArgs tile{a + m, b + n, scratch.tile, args.rows, rows, columns, args.lda, args.ldb, kRoundedColumns};
      outer<float>(tile, 0, rows, 0, columns, scratch.outer);
      for (int64_t i = 0; i < rows; ++i)
        round_row(scratch.tile + i * kRoundedColumns, columns, c + (m + i) * args.ldc + n);
    }
}

}  // namespace
}  // namespace weft::runtime
