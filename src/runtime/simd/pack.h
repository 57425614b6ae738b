#pragma once

#include "runtime/kernels/kernels.h"
#include "runtime/kernels/pack_entry.h"
#include "runtime/simd/f16.h"
#include "runtime/simd/vector.h"

namespace weft::runtime {
namespace {

/// Interleaves the low (or high) halves of two vectors: the step of a transposition by perfect shuffles.
template <bool High, typename V, int... Lane>
[[gnu::always_inline]] inline V interleave_lanes(V a, V b, Lanes<Lane...> lanes) {
  return __builtin_shufflevector(a, b, ((Lane % 2) * lanes.kCount + Lane / 2 + (High ? lanes.kCount / 2 : 0))...);
}

template <typename T, bool High>
[[gnu::always_inline]] inline Vector<T> interleave(Vector<T> a, Vector<T> b) {
  return interleave_lanes<High>(a, b, AllLanes<T>());
}

/// Transposes a lanes x lanes square of registers: log2(lanes) rounds, each interleaving row i with row i + lanes / 2.
template <typename T>
[[gnu::always_inline]] inline void transpose_square(Vector<T> (&rows)[Simd<T>::kLanes]) {
  constexpr int kLanes = Simd<T>::kLanes;
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Vector<T> next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = interleave<T, false>(rows[i], rows[i + kLanes / 2]);
      next[2 * i + 1] = interleave<T, true>(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

/// Prefetches the memory `bytes` behind p. If that lies outside p's memory, nothing is read.
[[gnu::always_inline]] inline void prefetch_bytes(const void* p, int64_t bytes) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes)));
}

/// How far ahead rows are prefetched that are read side by side: there are more of them than the processor's own
/// prefetcher follows.
constexpr int64_t kBytesAhead = int64_t{4} * kVectorBytes;

/// destination[i * destination_step + j] = source[j * ld + i] for i < k and j < lanes; columns from `count` on are
/// zeros. The source's elements have type T, or are converted to it.
template <typename T, typename Source>
void transpose_strip(const Source* source, int64_t ld, int64_t count, int64_t k, T* destination,
                     int64_t destination_step) {
  constexpr int kLanes = Simd<T>::kLanes;
  int64_t i = 0;
  if (count == kLanes) {
    for (; i + kLanes <= k; i += kLanes) {
      Vector<T> square[kLanes];
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) {
        square[j] = load(source + j * ld + i);
        prefetch_bytes(source + j * ld + i, kBytesAhead);
      }
      transpose_square<T>(square);
#pragma GCC unroll 16
      for (int j = 0; j < kLanes; ++j) store(destination + (i + j) * destination_step, square[j]);
    }
  }
  for (; i < k; ++i)
    for (int64_t j = 0; j < kLanes; ++j)
      destination[i * destination_step + j] = j < count ? value_of(source[j * ld + i]) : T(0);
}

/// destination[i * destination_step + j] = source[i * ld + j] for i < k and j < lanes; columns from `count` on are
/// zeros. The source's elements have type T, or are converted to it.
template <typename T, typename Source>
void copy_strip(const Source* source, int64_t ld, int64_t count, int64_t k, T* destination, int64_t destination_step) {
  if (count == Simd<T>::kLanes) {
    for (int64_t i = 0; i < k; ++i) store(destination + i * destination_step, load(source + i * ld));
  } else {
    for (int64_t i = 0; i < k; ++i) store(destination + i * destination_step, load_first(source + i * ld, count));
  }
}

/// How many steps of transposed weights are packed at once. If a vector is only a part of a line of the panel, the line
/// is still in the cache when its other part is written.
constexpr int64_t kPackedAlong = kVectorBytes == target::kUnit ? 1024 : 64;

/// Packs the steps k0..k0+steps-1 of one panel.
template <typename T, typename Source>
void pack_steps(const PackArgs& args, int64_t panel, int64_t k0, int64_t steps) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  const int64_t group_width = args.unroll * Simd<T>::kUnitLanes;
  const int64_t width = args.groups * group_width;
  const auto* source = static_cast<const Source*>(args.source);
  T* rows = static_cast<T*>(args.destination) + (panel * args.k + k0) * width;
  for (int64_t column = 0; column < width; column += kLanes) {
    const int64_t unit = panel * group_width + column % group_width;  // within its group
    const int64_t n = column / group_width * args.n + unit;
    int64_t count = args.n - unit;
    count = count < 0 ? 0 : smaller(count, kLanes);
    if (args.transposed) {
      transpose_strip(count > 0 ? source + n * args.ld + k0 : source, args.ld, count, steps, rows + column, width);
    } else {
      copy_strip(count > 0 ? source + k0 * args.ld + n : source, args.ld, count, steps, rows + column, width);
    }
  }
}

/// Packs panels of T from weights of T or of Source. Reads the source in long runs: along k if `transposed`, else along
/// n, across panels.
template <typename T, typename Source = T>
void pack(const PackArgs& args, int64_t first_panel, int64_t last_panel) {
  constexpr int64_t kAlong = kPackedAlong, kAcross = 16;
  if (args.transposed) {
    for (int64_t panel = first_panel; panel < last_panel; ++panel)
      for (int64_t k = 0; k < args.k; k += kAlong) pack_steps<T, Source>(args, panel, k, smaller(kAlong, args.k - k));
  } else {
    for (int64_t k = 0; k < args.k; k += kAcross)
      for (int64_t panel = first_panel; panel < last_panel; ++panel)
        pack_steps<T, Source>(args, panel, k, smaller(kAcross, args.k - k));
  }
}

/// PanelsOnTheWay. `unit_bytes` as for packing_on_the_way.
template <PackKernel kPack>
const void* panels_on_the_way(const void* entry, const void* weights, int64_t first, int64_t count,
                              const ProductLayout& layout, int64_t unit_bytes) {
  if (!is_on_the_way(entry)) return entry;
  const PackArgs args = packing_on_the_way(entry, weights, first, layout, unit_bytes);
  kPack(args, first, first + count);
  return args.destination;
}

template <typename T, typename Source = T>
const void* on_the_way(const void* entry, const void* weights, int64_t first, int64_t count,
                       const ProductLayout* layout) {
  return panels_on_the_way<pack<T, Source>>(entry, weights, first, count, *layout, layout->k * target::kUnit);
}

}  // namespace
}  // namespace weft::runtime
