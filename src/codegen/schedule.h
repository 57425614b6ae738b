#pragma once

#include <map>
#include <set>
#include <vector>

#include "ir/program.h"
#include "passes/fuse.h"
#include "runtime/plan.h"

namespace weft::codegen {

/// The ops of one stage of a block, in order.
struct Stage {
  passes::Lowering lowering = passes::Lowering::kFused;
  std::vector<const ir::Op*> ops;
  ir::Shape domain;       ///< of a fused stage
  int64_t unroll = 0;     ///< units side by side in its panels; 0 without a product
  int64_t lanes = 16;     ///< elements of one vector
  int64_t row_block = 1;  ///< rows that a product does at once
  bool has_reduction = false;
};

/// The stages of a block, and which of its values are stored in memory.
struct BlockSchedule {
  std::vector<Stage> stages;
  std::set<ir::ValueId> stored;
  bool batched = false;
};

/// Buffers of a scan's own: two instances each, for alternate steps.
struct ScanBuffers {
  BlockSchedule block;
  std::vector<int64_t> carries;            ///< one a carry
  std::map<ir::ValueId, int64_t> scratch;  ///< values stored within a step that are neither carry nor y
};

/// A fused program as code generation sees it. Holds pointers into `program`, which must outlive it.
struct Schedule {
  const ir::Program* program = nullptr;
  std::map<ir::ValueId, const ir::Op*> definition;
  BlockSchedule body;
  std::map<const ir::Op*, ScanBuffers> scans;  ///< those with machine code
  std::map<ir::ValueId, int64_t> buffer;       ///< of every value of the body that is stored, or is an alias of one
  runtime::Plan plan;                          ///< complete but for stages' functions and calls

  /// The size as the plan's index; the plan's `dims` grow as machine code asks for sizes.
  runtime::DimExpr expression(const ir::Dim& dim) const;
};

/// The row counts that the micro-kernels like best, by vectors of their panel (1..4).
struct TileRows {
  int64_t f32[5];
  int64_t f64[5];
};

/// Assigns buffers and describes stages (plan.stages[i] belongs to body.stages[i], symbols are `stage_<i>`).
Schedule schedule(const ir::Program& fused, const TileRows& tile_rows);

/// The op whose memory (or register) a value names: views are followed to what they view. An argument gives itself.
ir::ValueId viewed(const Schedule& schedule, ir::ValueId value);

}  // namespace weft::codegen
