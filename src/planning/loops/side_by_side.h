#pragma once

#include <map>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// Scans of the body that may run at the same time, each as a whole by one member. Each is one function. They may be
/// independent, like the two directions of a bidirectional layer. Or one follows another, as the second layer follows
/// the first: a step of the follower needs only what the leader stored in the same step, so it may run some steps
/// behind. The fields are places in `body.stages`; each place from the first scan to the last is in one of them. The
/// stages may run in this order: stages that the scans may need, the scans, stages that may need the scans' results.
struct ScanGroup {
  std::vector<int64_t> before;
  std::vector<int64_t> scans;  ///< at least two, in order
  std::vector<int64_t> after;
  /// Stages that read only the current step's slice of results of the group's scans, and whose own results only one
  /// scan of the group reads. They have to run in the windows of that scan (windows.h).
  std::vector<int64_t> within;
  /// (follower, leader) pairs, as indices in `scans`. The leader comes first in `scans`.
  std::vector<std::pair<int64_t, int64_t>> follows;
};

/// The groups of scans, which don't overlap. A stage depends on an earlier one if either writes memory that the other
/// reads or writes, results in the memory of donated inputs included. A stage that writes to a donated input also
/// depends on all earlier stages that may fail (donations.h). A call of PyTorch keeps its place: no group has such a
/// call between its scans. `windowed`: windowed_stages. Needs the buffers of all values.
std::vector<ScanGroup> scan_groups(const Schedule& schedule, const BlockSchedule& body,
                                   const std::map<const Stage*, size_t>& windowed);

}  // namespace weft::planning
