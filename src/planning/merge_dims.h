#pragma once

#include "planning/schedule.h"

namespace weft::planning {

/// Collapses loops: merges trailing dims of an elementwise stage, if all its values are dense in the domain's order.
/// The domain [B, D, N] then runs as B rows of D N columns instead of B D rows of N columns; in a scan that is not
/// batched, as one row (`batched`: ScanDecision). A stage that slices, reduces, multiplies matrices or broadcasts more
/// than single numbers stays as it is.
void merge_dims(const Schedule& schedule, BlockSchedule& block, bool batched);

}  // namespace weft::planning
