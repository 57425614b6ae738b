#pragma once

#include <set>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// For each stage of a scan's step, whether it computes nothing but carries for the next step, or what only such stages
/// read. These stages are skipped in the last step, if nobody reads the carry that the scan would return. So the
/// gradient of an initial state that needs none costs no product. `used`: the values of the program that something
/// reads.
std::vector<bool> stages_for_next_step(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block,
                                       const std::set<ir::ValueId>& used);

}  // namespace weft::planning
