#pragma once

#include <map>
#include <set>
#include <vector>

#include "ir/program.h"
#include "passes/layout/fuse.h"
#include "runtime/plan.h"

namespace weft::planning {

/// The ops of one stage of a block, in order.
struct Stage {
  passes::Lowering lowering = passes::Lowering::kFused;
  std::vector<const ir::Op*> ops;
  ir::Shape domain;       ///< of a fused stage, trailing dims merged perhaps (merge_dims.h)
  int64_t rank = 0;       ///< dims of the domain, none merged
  int64_t unroll = 0;     ///< units side by side in its panels; 0 without a product
  int64_t lanes = 16;     ///< elements of one vector
  int64_t row_block = 1;  ///< rows that a product does at once
  bool has_reduction = false;
  int64_t index = 0;  ///< runtime::StagePlan::index
  int64_t last = 0;   ///< that of the last stage within it, or its own
};

/// Whether threads may share the stage's columns, each computing some of every row (ColumnSharing says how): only of
/// fused stages whose elements don't need whole rows, and of rows wide enough for two.
bool splits_columns(const Stage& stage);

/// The most threads that the stage's columns can be shared by; 1 if it doesn't split.
int64_t column_shares(const Stage& stage);

/// Shares of columns are multiples of so many vectors: what is computed together.
int64_t column_grain(const Stage& stage);

/// The stages of a block, and which of its values are stored in memory.
struct BlockSchedule {
  std::vector<Stage> stages;
  std::set<ir::ValueId> stored;
  bool batched = false;
};

/// Buffers of a scan's own: two instances each, for alternate steps; of what replicated stages store (ColumnSharing),
/// two for every thread that shares columns.
struct ScanBuffers {
  BlockSchedule block;
  std::vector<int64_t> carries;            ///< one a carry
  std::map<ir::ValueId, int64_t> scratch;  ///< values stored within a step that are neither carry nor y
  /// Values of replicated stages that are ys and no carry: where other threads than the first, which stores the y,
  /// have theirs.
  std::map<ir::ValueId, int64_t> others;
  std::vector<bool> barrier_before;  ///< of each stage, when threads share columns
};

/// An op whose regions are divided into stages (runtime::ControlPlan): cond, while, and a scan that runs its stages
/// step by step.
struct ControlSchedule {
  std::vector<BlockSchedule> blocks;          ///< one a region
  std::vector<int64_t> carries;               ///< two instances of each, for alternate steps
  std::vector<std::vector<int64_t>> results;  ///< of each region, the buffers that its results are stored to
};

/// A fused program as code generation sees it. Holds pointers into `program`, which must outlive it.
struct Schedule {
  const ir::Program* program = nullptr;
  std::map<ir::ValueId, const ir::Op*> definition;
  BlockSchedule body;
  std::map<const ir::Op*, ScanBuffers> scans;  ///< those that are one function
  std::map<const ir::Op*, ControlSchedule> controls;
  std::map<ir::ValueId, int64_t> buffer;             ///< of what stages store, and of aliases of it
  std::map<ir::ValueId, std::vector<int64_t>> also;  ///< further buffers that a value's stage stores it to
  runtime::Plan plan;                                ///< complete but for stages' functions and calls

  /// The size as the plan's index; the plan's `dims` grow as machine code asks for sizes.
  runtime::DimExpr expression(const ir::Dim& dim) const;
};

/// The row counts that the micro-kernels like best, by vectors of their panel (1..4).
struct TileRows {
  int64_t f32[5];
  int64_t f64[5];
};

/// Assigns buffers and describes stages. plan.stages[i] belongs to body.stages[i], its symbol is `stage_<i>`; those
/// within it are `stage_<i>_<j>`, or where it has two regions `stage_<i>a_<j>` and `stage_<i>b_<j>`.
Schedule schedule(const ir::Program& fused, const TileRows& tile_rows);

/// Divides a block's ops into stages and finds which values need memory.
BlockSchedule schedule_block(Schedule& schedule, const ir::Block& block, bool batched, const TileRows& tile_rows);

/// The op whose memory (or register) a value names: views are followed to what they view. An argument gives itself.
ir::ValueId viewed(const Schedule& schedule, ir::ValueId value);

}  // namespace weft::planning
