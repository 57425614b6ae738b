#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Orders the writes of results that take an input's memory (ir::Donation) behind all reads of the input. Part of fuse,
/// whose stages say what runs when; from here on such a result is written where the input lies.
///
/// A result stays where it is computed if every stage that reads the input comes before its stage. It stays, too, if
/// its own stage reads the input, but only at the element at hand, and for the first time at or before the op that
/// stores the result: the code of a stage loads an element once and keeps it in a register.
///
///     %p2 = sub %p, %u {stage = 1} : f32[64,64]
///     return %p2 in %p                            // in place: each element is read, then written
///
/// Any other result is computed into memory of its own, and copied in a stage behind all others:
///
///     %p2 = sub %p, %u {stage = 1} : f32[64,64]
///     %n = reduce_max %p {dims = [1], stage = 2} : f32[64]
///     %c = copy %p2 {stage = 3} : f32[64,64]
///     return %c in %p, %n
void order_donated_writes(ir::Program& program);

/// Whether the result at this position is the very input whose memory it takes, so that there is nothing to write.
bool is_kept(const ir::Program& program, size_t result);

}  // namespace weft::passes
