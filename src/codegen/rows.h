#pragma once

#include "codegen/access.h"
#include "codegen/frame.h"

namespace weft::codegen {

/// Emits a fused stage for rows first..last-1 of its domain and the frame's share of the columns.
///
/// With a product, it calls the runtime's loop over panels and blocks of rows. For each the micro-kernel leaves a tile
/// of the product in a buffer on the stack, which stays in L1, and the elementwise ops run on the tile (the epilogue, a
/// function of its own). `alone`: the stage is a function, not a part of a scan. Then its products have an outer loop
/// over chunks of rows, whose left operands stay in L2 while all panels pass, and take the rows in each of the
/// function's steps (runtime::StageFunction).
void emit_rows(Frame& frame, const planning::Stage& stage, llvm::Value* first, llvm::Value* last, bool alone);

/// Share `unit` of `units` of the columns of a stage's domain, in vectors: [first, last). All columns if the stage
/// doesn't split them. Stages of equal width, lanes and column_grain() have equal shares, so that a thread reads back
/// the columns that it wrote.
struct UnitRange {
  llvm::Value *first, *last;
};
UnitRange unit_range(Frame& frame, const planning::Stage& stage);

/// The share of unit_range() in columns, not in vectors: [first, last).
UnitRange column_range(Frame& frame, const planning::Stage& stage);

}  // namespace weft::codegen
