#pragma once

#include <map>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// The stages of the body that may run inside a scan, for a few steps at a time (a window) right before these steps,
/// instead of for all steps in front of the scan. By stage: the index in `body` of the scan's stage. Only the steps of
/// that scan read the stages' results, a slice a step, and each row of the results belongs to one step and one row of
/// the batch. What they store then stays in the cache until it is read, and takes the memory of a window only.
///
/// A stage that reads a donated input is not among them: by the time of the scan the input may be written over.
std::map<const Stage*, size_t> windowed_stages(const Schedule& schedule, const BlockSchedule& body);

}  // namespace weft::planning
