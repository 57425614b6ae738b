#pragma once

#include <functional>

#include "planning/schedule.h"

namespace weft::planning {

/// The stages of a block of the program; asked for once a block.
using TakeBlock = std::function<BlockSchedule(const ir::Block&)>;

/// Buffer allocation: fills schedule.plan from the stages of the program's blocks, with a buffer for each stored value,
/// its live range, and a description of each stage.
///
/// Stages are numbered in the order in which they run; the stages of a loop follow the loop's own number. A live range
/// is an interval of these numbers:
///
///     0        stores %a
///     1        a loop; its step consists of the stages 2 and 3
///       2      stores %b
///       3      reads %a and %b
///     4
///
/// %b, which is used inside the loop only, lives in [2, 3]. %a is read in every step, so it lives until the loop's last
/// stage: [0, 3], whichever stage of the loop reads it.
void make_plan(Schedule& schedule, const TakeBlock& take_block);

/// Whether the op calls PyTorch, which has threads of its own.
bool calls_out(const ir::Op& op);

}  // namespace weft::planning
