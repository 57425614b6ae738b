#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan.h"
#include "runtime/window.h"

namespace weft::runtime {

// How a run has the panels of a pack that may be left out (PackCall). What it chose shows in the entry of the pack's
// buffer, for stages of machine code as for the runtime:
//
//   an even address   a stage of its own has packed them there
//   null              nobody packs: products read the weights as they lie
//   an odd address    products pack a panel at a time, right before they multiply by it, into the member's memory at
//                     the address below

/// The destinations of the packs that runs with these values leave out, since their panels would be multiplied by few
/// rows only (target::rows_worth_packing). Depends on sizes alone: the bits are the same on any number of threads.
std::vector<int64_t> left_out_packs(const Plan& plan, const std::vector<int64_t>& symbols);

/// The destinations of the packs whose panels are packed where they are multiplied, with the bytes of one panel, in
/// whole cache lines: memory that each member needs for it. They are so in runs whose products go over the weights
/// once or twice: the panels are then never written to memory and read again. The bits are those of the pack's stage.
std::vector<BufferBytes> packs_on_the_way(const Plan& plan, const std::vector<int64_t>& symbols);

/// The entry of a buffer that holds the memory at `place` for panels packed on the way.
inline void* on_the_way(void* place) { return static_cast<char*>(place) + 1; }

/// Whether a stage of its own packs the panels of a buffer with this entry.
inline bool packs_before(const void* entry) { return entry && reinterpret_cast<uintptr_t>(entry) % 2 == 0; }

}  // namespace weft::runtime
