#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace weft::runtime {

struct StageSizes;

/// The size of a buffer, where it differs from the plan's.
struct BufferBytes {
  int64_t buffer = 0, bytes = 0;
};

/// A buffer with `count` places of `bytes` each: member i has place i % count.
struct PlacesOfMembers {
  int64_t buffer = 0, bytes = 0, count = 1;
};

/// How many steps of the scan its windowed stages run at once, within the scan; 0: they run before it, for all steps.
///
/// Windows pay where the stacks of all steps don't fit the core's cache and those of a window do, or at least the
/// shared one (of one step, where that is larger than the core's own: LSTM B418 T36 H184 of two layers, forward, one
/// thread of a Zen 4, 221 to 226 ms without windows, 184 to 192 with them; eager 188 to 204). They cost reading the
/// stages' weights once a window, which must be less than what they save, or arrive from the shared cache while a
/// window of enough rows multiplies. (Scans of fewer rows than hide that at each step have no such windows: what they
/// wait for are their own weights, which the stages' would push out of the core's cache.) Threads that share a scan's
/// columns share those of its windows, so each reads its part of the weights. (Two threads of a Zen 5, forward: LSTM
/// B11 T213 I2 H531 17.0 ms without windows, 13.8 with them; LSTM B12 T512 I128 H256 both ways 27.6 and 23.6; GRU B1
/// T2048 I32 H256 5.8 and 5.3.) Stacks that would go through memory give way to windows of many rows also where the
/// weights may come from there: that takes as long, and less memory. (Zen 5, B128 T32 H1024 and B32 T100 H1024, one
/// thread and two: 0.97 to 1.02 of the time, 76 to 80 % of the memory. Steps of fewer rows than 16 wait for the scan's
/// own weights: LSTM H1024, B4 T1024 on two threads and B8 T512 on one, 3 % more time; they have no such windows.)
/// `sizes`: of all stages before the scan, by index, and of the scan itself, all that doesn't depend on windows.
int64_t window_steps(const Plan& plan, const StagePlan& scan, const std::vector<StageSizes>& sizes,
                     const std::vector<int64_t>& symbols, int64_t threads);

/// The memory of the buffers that hold windows, given the sizes of all stages. Members next to each other have
/// different places, unless they share columns or their rows take many pages. Their rows lie side by side at each step,
/// and a processor's prefetcher, which doesn't know where a member's rows end, would take the next member's lines while
/// that one writes them. (Two threads of a Zen 4, GRU B32 T512 H64: 5.4 ms with one place, 4.9 with two; where the
/// threads share no cache, 8.5 and 6.4.)
std::vector<PlacesOfMembers> window_buffers(const Plan& plan, const std::vector<StageSizes>& sizes,
                                            const std::vector<int64_t>& symbols, int64_t threads);

/// Bytes of one step in a buffer that stacks `length` steps.
int64_t step_bytes(const Plan& plan, int64_t buffer, const std::vector<int64_t>& symbols, int64_t length);

}  // namespace weft::runtime
