#pragma once

#include <map>
#include <set>
#include <vector>

#include "ir/program.h"
#include "ir/size_table.h"
#include "planning/lowered_program.h"
#include "planning/pack_uses.h"
#include "runtime/plan/plan.h"

namespace weft::planning {

/// The ops of one stage of a block, in order.
struct Stage {
  Lowering lowering = Lowering::kFused;
  std::vector<const ir::Op*> ops;
  ir::Shape domain;       ///< of a fused stage; merge_dims.h may have merged trailing dims
  int64_t rank = 0;       ///< the domain's number of dims before merging
  int64_t unroll = 0;     ///< units side by side in its panels; 0 without a product
  int64_t lanes = 0;      ///< elements of one vector
  int64_t row_block = 1;  ///< threads' shares of the rows are multiples of this
  int64_t tile_rows = 1;  ///< rows that its products take at once; row_block or more
  /// How many rows a reduction over rows makes one of (LoweringRules::reduces_rows); 0 without one. A thread's share of
  /// the rows is a multiple of it.
  int64_t row_group = 0;
  bool has_reduction = false;
  std::set<ir::ValueId> unrounded;  ///< results of casts whose readers take the operand instead (excess_precision)
  std::set<ir::ValueId> coarse;     ///< f32 results for which the precision of bf16 is enough (excess_precision)
  int64_t index = 0;                ///< runtime::StagePlan::index
  int64_t last = 0;                 ///< the index of the last stage within it, or its own
};

/// Whether one of the stage's ops costs more than reading its operands (ir::Cost).
bool is_dear(const Stage& stage);

/// Whether threads may share the stage's columns, each computing some columns of every row (ColumnSharing): the stage
/// is fused, its elements don't need whole rows, and its rows are wide enough for two threads.
bool splits_columns(const Stage& stage);

/// The most threads that the stage's columns can be shared by; 1 if it doesn't split.
int64_t column_shares(const Stage& stage);

/// Shares of columns are multiples of this many vectors: of whole panels, and of at least two vectors.
int64_t column_grain(const Stage& stage);

/// The stages of a block, and the values of it that are stored in memory.
struct BlockSchedule {
  std::vector<Stage> stages;
  std::set<ir::ValueId> stored;
};

/// The buffers that belong to a scan. Each has two instances, for even and odd steps. Buffers of replicated stages
/// (ColumnSharing) have two for every thread that shares columns.
struct ScanBuffers {
  BlockSchedule block;
  std::vector<int64_t> carries;            ///< one a carry
  std::map<ir::ValueId, int64_t> scratch;  ///< by value stored within a step, neither carry nor y
  /// By y that a replicated stage computes, carries apart: the buffers to which all threads but the first store it. The
  /// first thread stores it to its stack.
  std::map<ir::ValueId, int64_t> others;
  std::set<ir::ValueId> streamed;    ///< the ys whose stacks may go past the caches (streamed_ys)
  std::vector<bool> barrier_before;  ///< by stage: whether a barrier is before it when threads share columns
  std::set<ir::ValueId> crossing;    ///< values of a step that one thread writes and others read (ColumnSharing)
  std::vector<bool> for_next_step;   ///< by stage: whether the last step skips it
};

/// An op whose regions are divided into stages (runtime::ControlPlan): cond, while, and a scan that runs step by step.
struct ControlSchedule {
  std::vector<BlockSchedule> blocks;          ///< one a region
  std::vector<int64_t> carries;               ///< buffers with two instances, for even and odd steps
  std::vector<std::vector<int64_t>> results;  ///< for each region, the buffers of its results
};

/// What code generation reads of a lowered program, and the plan that the runtime runs.
struct Schedule : LoweredProgram {
  BlockSchedule body;
  std::map<const ir::Op*, ScanBuffers> scans;  ///< the scans that are one function
  std::map<const ir::Op*, ControlSchedule> controls;
  std::map<ir::ValueId, PackUses> packs;
  std::map<ir::ValueId, int64_t> buffer;             ///< by stored value, and by its aliases
  std::map<ir::ValueId, std::vector<int64_t>> also;  ///< further buffers to which a value is stored
  runtime::Plan plan;                                ///< complete but for stages' functions and calls

  ir::SizeTable sizes;  ///< the plan's values

  /// The size in the plan's form. May add a derived value to the plan.
  runtime::DimExpr expression(const ir::Dim& dim);
};

/// Divides a program into stages for a target, and gives each value that is stored its buffer. plan.stages[i] belongs
/// to body.stages[i] and has the symbol `stage_<i>`. The stages within it are `stage_<i>_<j>` or, if it has two
/// regions, `stage_<i>a_<j>` and `stage_<i>b_<j>`. Inserts copies into the program where a value needs memory of its
/// own (fusion/fuse.h). The target's layout passes have run before. Program and target must outlive the schedule.
Schedule lower(ir::Program& program, const Target& target);

/// The pack that makes these panels, if a run may leave it out; else null.
const ir::Op* pack_that_may_be_left_out(const Schedule& schedule, ir::ValueId panels);

}  // namespace weft::planning
