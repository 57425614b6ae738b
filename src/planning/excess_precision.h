#pragma once

#include <set>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// Sets Stage::unrounded: the f32 numbers that a cast with {excess_precision = true} would round, where all that reads
/// them are casts back to f32 in the same stage.
void mark_unrounded(const ir::Program& program, const ir::Block& block, const std::set<ir::ValueId>& stored,
                    std::vector<Stage>& stages);

}  // namespace weft::planning
