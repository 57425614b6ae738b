#pragma once

#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// Scans of the body that don't depend on each other: the two directions of a bidirectional layer, say. Each is one
/// function, so different members may run them at the same time. The fields are places in `body.stages`; together they
/// are all places from the first scan to the last, which may run in this order instead: what some scan of the group may
/// need, the scans, what may need their results.
struct IndependentScans {
  std::vector<int64_t> before;
  std::vector<int64_t> scans;  ///< at least two, in order
  std::vector<int64_t> after;
};

/// Groups of such scans, which don't overlap. A stage depends on an earlier one if either writes memory that the other
/// reads or writes, results in the memory of donated inputs included; and if the earlier may fail and it writes to a
/// donated input (donations.h). A call of PyTorch keeps its place: no group has one between its scans. Needs the
/// buffers of all values.
std::vector<IndependentScans> independent_scans(const Schedule& schedule, const BlockSchedule& body);

}  // namespace weft::planning
