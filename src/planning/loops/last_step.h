#pragma once

#include <set>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// For each stage of a scan's step, whether it serves the next step only: it computes carries, or values that only such
/// stages read. These stages are skipped in the last step, if nobody reads the final carry. So the gradient of an
/// initial state that needs none costs no product. `used`: the values of the program that something reads.
std::vector<bool> stages_for_next_step(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block,
                                       const std::set<ir::ValueId>& used);

}  // namespace weft::planning
