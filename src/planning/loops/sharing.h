#pragma once

#include <set>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// How threads ("units") share the columns of a scan's rows, and where they wait for each other.
///
/// All units run the same stages 0..n-1 of the same steps. Only barriers order them. A stage is
///
/// - **split**: each unit writes its own range of the columns of every row, the same range at every step;
/// - **replicated**: each unit runs the whole stage and stores to memory of its own. Such are reductions, which need
///   whole rows; copies of rows; and stages whose rows are too narrow to split or of unknown width. Stacks and results,
///   which are read after the loop only, are stored by unit 0.
///
/// So a replicated value is only read by the unit that wrote it, and no two units write the same element. What remains
/// to be ordered are *crossing* reads: reads of a split stage's value at columns of other units. A read does not cross
/// if it is by a split stage with the same ranges, whose column c reads column c of the value (or column c of one of
/// several gates side by side). All other reads cross: left operands of products, slices that start within a gate, and
/// reads of replicated stages.
///
/// Values within a step and carries have two instances, for even and odd steps, so memory is written again two steps
/// later. A stack has a slice for each step. For a crossing read by stage r of a value that stage w writes, there must
/// be a barrier
///
/// 1. for a value of the same step (w < r), between the write and the read: before one of the stages w+1..r. The next
///    write to that instance comes two steps later, so the same barrier in the step between orders it after the read;
/// 2. for a carry, between the write and the read in the next step: before one of the stages w+1..n-1, 0..r;
/// 3. for a carry, between the read and the next write to the same instance, which is in the step after the read's:
///    before one of the stages r+1..n-1, 0..w. (This holds for a read of the initial carry too, which nobody writes.)
/// 4. for a carry of a reversed ragged scan, where the initial carries of rows that enter are copied before stage 0:
///    between the copy and the read, before one of the stages 0..r.
///
/// Seen on the circle of stages, each rule asks for a barrier somewhere in an arc. The fewest barriers that meet all
/// rules are chosen. Without crossing reads there is none, and units may drift any number of steps apart.
struct ColumnSharing {
  std::vector<bool> barrier_before;  ///< of each stage
  std::set<ir::ValueId> crossing;    ///< values of crossing reads, as they lie in memory
};

ColumnSharing share_columns(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block);

/// The smallest set of points among 0..count-1 on a circle with a point in every arc first..last (last < first: the arc
/// passes 0). If all arcs are longer than 64 points it may have one point more than the smallest.
std::vector<bool> fewest_points(int64_t count, const std::vector<std::pair<int64_t, int64_t>>& arcs);

}  // namespace weft::planning
