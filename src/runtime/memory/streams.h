#pragma once

#include <cstdint>

/// Whether a thread stores its rows of a loop's stacks past the caches (non-temporal stores): 1 or 0. `bytes`: the size
/// of the stacks that may be stored so, over all steps. `own`: the thread's share of it. `count`: the number of stacks.
/// `addresses`: the stacks' addresses, or-ed together. All addresses and sizes have to be whole cache lines.
///
/// A store through the caches reads its line first, and a processor doesn't prefetch the lines of many stacks. But data
/// stored past the caches has to come back from memory. So it pays where the thread's rows don't stay in its core's own
/// cache, and
/// - the stacks are larger than what the shared cache keeps for one program, taken to be half of it,
/// - or they are three or more: most of these are read by a backward alone, long after.
///
/// (Zen 4, 1 MB and 32 MB, one thread, training, forward and backward: LSTM B256 T100 H128 5 % less and the same, B32
/// T512 H64 13 and 4 % less, B16 T64 H128, 3.5 MB of stacks, 7 % less and 2 % more, B4 T32 H128 the same and 19 % more.
/// A scan of one elementwise stack of 8 MB whose ys are summed at once: 8 % more.)
extern "C" int64_t weft_streams(int64_t bytes, int64_t own, int64_t count, int64_t addresses);
