#pragma once

#include "planning/schedule.h"

namespace weft::planning {

/// Whether a step of the scan is one elementwise stage whose elements read the carries at their own place only. Then
/// each element of the carries is a recurrence of its own, and a vector of them can stay in registers from the first
/// step to the last.
bool is_elementwise_scan(const Schedule& schedule, const ir::Op& scan);

}  // namespace weft::planning
