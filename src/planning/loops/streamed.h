#pragma once

#include <set>

#include "ir/program.h"
#include "planning/schedule.h"

namespace weft::planning {

/// The ys of a scan whose stacks may go past the caches (runtime/memory/streams.h): each vector of them is whole cache
/// lines, and no stage of the step reads them from memory.
std::set<ir::ValueId> streamed_ys(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block);

}  // namespace weft::planning
