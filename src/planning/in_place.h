#pragma once

#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// For each carry of a loop, whether one memory may hold it in all steps. That is so if its next value replaces a part
/// of it (OpTraits::updated) and nothing in the step reads the old value after that. `loop` is a scan that runs step by
/// step, or a while; `body` has the stages of its steps. Needs the buffers of all values.
std::vector<bool> carries_in_place(const Schedule& schedule, const ir::Op& loop, const BlockSchedule& body);

}  // namespace weft::planning
