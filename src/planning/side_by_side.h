#pragma once

#include <map>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// Scans of the body that may run at the same time, each as a whole by one member. Each is one function. Either they
/// don't depend on each other, as the two directions of a bidirectional layer. Or one follows another, as the second
/// layer follows the first: a step of it needs only what the other stored in the same step, so it may run some steps
/// behind. The fields are places in `body.stages`. All places from the first scan to the last are in one of them. The
/// stages may run in this order instead: what the group's scans may need, the scans, what may need their results.
struct ScanGroup {
  std::vector<int64_t> before;
  std::vector<int64_t> scans;  ///< at least two, in order
  std::vector<int64_t> after;
  /// Stages that read only the current step's slice of what the group's scans make, and whose results only one scan of
  /// the group reads. They have to run in the windows of that scan (windows.h).
  std::vector<int64_t> within;
  /// (follower, leader) pairs, as indices in `scans`: the follower follows the leader, which stands before it.
  std::vector<std::pair<int64_t, int64_t>> follows;
};

/// The groups of scans, which don't overlap. A stage depends on an earlier one if either writes memory that the other
/// reads or writes, results in the memory of donated inputs included. It also depends on an earlier one that may fail
/// if it writes to a donated input itself (donations.h). A call of PyTorch keeps its place: no group has such a call
/// between its scans. `windowed`: windowed_stages. Needs the buffers of all values.
std::vector<ScanGroup> scan_groups(const Schedule& schedule, const BlockSchedule& body,
                                   const std::map<const Stage*, size_t>& windowed);

}  // namespace weft::planning
