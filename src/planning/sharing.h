#pragma once

#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// How threads ("units") share the columns of a scan's rows, and where they wait for each other.
///
/// All units run the same stages 0..n-1 of the same steps, with no order between them but that of barriers. A stage is
///
/// - **split**: each unit writes its own range of the columns of every row, the same range at every step;
/// - **replicated** (reductions, which need whole rows; copies of rows; rows too narrow or of unknown width to split):
///   each unit runs it whole and writes, into memory of the unit's own, what it reads itself. Stacks and results, which
///   are read after the loop only, are written by unit 0.
///
/// So a replicated value is never read by another unit than the one that wrote it, and no two units ever write the same
/// element. What is left to order are *crossing* reads: reads of a split stage's value at other columns than the unit's
/// own. Own columns are read by a split stage of the same ranges that finds its column c in the value's column c (or,
/// of several gates side by side, in column c of one of them). All other reads cross: left operands of products, slices
/// that start within a gate, what replicated stages read.
///
/// Memory is written again two steps later: values within a step and carries have two instances, used by even and odd
/// steps; a stack has a slice for each step. So for a crossing read by stage r of a value that stage w writes, some
/// barrier must lie
///
/// 1. value of the same step (w < r), between the write and the read: before one of the stages w+1..r. The next write
///    of that instance follows a whole step later, and so after that barrier's next turn.
/// 2. carry, between the write and the read in the next step: before one of the stages w+1..n-1, 0..r;
/// 3. carry, between the read and the write that takes the same instance again, in the step after it: before one of
///    the stages r+1..n-1, 0..w. (The read may also be of the initial carry, which nobody writes.)
/// 4. carry of a reversed ragged scan, where rows that enter are copied to the carry before stage 0: between the copy
///    and the read, before one of the stages 0..r.
///
/// Every rule is met by a barrier anywhere within a range of a circle, and the fewest barriers that meet all are
/// chosen. Without crossing reads there is none, and units may be any number of steps apart.
struct ColumnSharing {
  std::vector<bool> barrier_before;  ///< of each stage
  int64_t barriers = 0;              ///< in one step
};

ColumnSharing share_columns(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block);

/// The smallest set of points 0..count-1 of a circle that has one in every arc first..last (last < first: around 0);
/// where arcs are longer than 64 points it may be one more than the smallest.
std::vector<bool> fewest_points(int64_t count, const std::vector<std::pair<int64_t, int64_t>>& arcs);

}  // namespace weft::planning
