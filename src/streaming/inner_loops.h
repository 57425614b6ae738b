#pragma once

#include "streaming/lengths.h"

namespace weft::streaming {

/// Loops over another dim than the time, whose values have the time among their dims, as a recurrent layer over the
/// bands of each frame, are written out step by step: each op is then streamed by itself. Loops that are too long for
/// that are left as they are, for the walker to refuse.
///
///   %h, %ys = scan length 3 carry(%c = %zeros) xs(%x = %xs : f32[3,T,8]) { ... }
///
/// becomes three times its region's ops, which read slices of %xs, and a concat of what they yield.
void inner_loops(ir::Program& program, const Lengths& lengths);

}  // namespace weft::streaming
