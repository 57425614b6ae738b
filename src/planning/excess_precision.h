#pragma once

#include <set>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// Sets Stage::unrounded: the f32 numbers that a cast with {excess_precision = true} would round, where all ops that
/// read them are casts back to f32. Those in the same stage then take the number unrounded, from its register; what is
/// stored for others is rounded.
///
/// Sets Stage::coarse too: the f32 numbers that are only read by such casts to bf16. The cast may give what is within
/// its rounding, so what it reads need be no nearer.
void mark_unrounded(const ir::Program& program, const ir::Block& block, std::vector<Stage>& stages);

}  // namespace weft::planning
