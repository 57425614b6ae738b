#pragma once

#include <set>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// Sets Stage::unrounded: the f32 numbers that a cast with {excess_precision = true} would round, if all ops that read
/// them are casts back to f32. Such casts in the same stage take the number unrounded, from its register; other readers
/// get the rounded number that is stored.
///
/// Sets Stage::coarse too: the f32 numbers that only such casts to bf16 read. The cast may return any number within its
/// rounding error, so its operand needs no higher precision.
void mark_unrounded(const ir::Program& program, const ir::Block& block, std::vector<Stage>& stages);

}  // namespace weft::planning
