#pragma once

#include "planning/schedule.h"

namespace weft::planning {

/// Gives the elementwise stages of a loop fewer and longer rows: trailing dims become one where every value lies in
/// memory as the domain does, so that [B, D, N] runs as B rows of D N columns instead of B D rows of N, and without the
/// batch as one row. A stage that slices, broadcasts other than single numbers, reduces or multiplies stays as it is.
void merge_dims(const Schedule& schedule, BlockSchedule& block);

}  // namespace weft::planning
