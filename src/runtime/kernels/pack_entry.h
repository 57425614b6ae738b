#pragma once

#include <cstdint>

#include "base/target.h"
#include "runtime/kernels/kernels.h"

// A pack that may be left out (PackCall) has an entry for its buffer. The entry tells stages of machine code and the
// runtime where a run has the panels:
//
//   an even address   a stage of its own has packed them there
//   null              nobody packs: products read the weights as they lie
//   an odd address    products pack a panel at a time, right before they multiply by it, into the member's memory at
//                     the address below
//
// Always inlined: the micro-kernels of each instruction set use these too, and no linker may merge their copies.

namespace weft::runtime {

/// The entry of a buffer that holds the memory at `place` for panels packed on the way.
[[gnu::always_inline]] inline void* on_the_way(void* place) { return static_cast<char*>(place) + 1; }

[[gnu::always_inline]] inline bool is_on_the_way(const void* entry) {
  return reinterpret_cast<uintptr_t>(entry) % 2 == 1;
}

/// Whether the panels of a buffer with this entry are packed by a stage of their own.
[[gnu::always_inline]] inline bool packs_before(const void* entry) { return entry && !is_on_the_way(entry); }

/// The arguments that pack the panels from `first` on at the place of an entry on the way. PackArgs counts from panel
/// 0, so its destination lies outside the entry's memory. `unit_bytes`: the bytes of a panel's unit over all steps
/// (target::kUnit bytes a step).
[[gnu::always_inline]] inline PackArgs packing_on_the_way(const void* entry, const void* weights, int64_t first,
                                                          const ProductLayout& layout, int64_t unit_bytes) {
  const auto before = static_cast<uintptr_t>(first * layout.groups * layout.unroll * unit_bytes);
  return {.source = weights,
          .destination = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry) - 1 - before),
          .k = layout.k,
          .n = layout.n,
          .groups = layout.groups,
          .unroll = layout.unroll,
          .ld = layout.ld,
          .transposed = layout.transposed != 0};
}

}  // namespace weft::runtime
