#pragma once

#include "codegen/access.h"
#include "codegen/frame.h"

namespace weft::codegen {

/// Emits a fused stage for rows first..last-1 of its domain and the frame's share of the columns.
///
/// With a product: for each panel, for each block of rows, the micro-kernel leaves the product's tile in a stack buffer
/// that stays in L1, and the elementwise ops run on it (the epilogue). `chunked` walks the rows in chunks that stay in
/// L2 while all panels pass (for the many rows outside a loop).
void emit_rows(Frame& frame, const planning::Stage& stage, llvm::Value* first, llvm::Value* last, bool chunked);

/// Emits a concatenation along the last dim of parts of unequal width, or a padding of it.
void emit_row_copy(Frame& frame, const planning::Stage& stage, llvm::Value* first, llvm::Value* last);

/// The share `unit` of `units` of a domain's columns, in vectors: [first, last); all columns of a stage that doesn't
/// split them. The same for all stages of one width, lanes and planning::column_grain(), so that a thread reads back
/// the columns that it wrote.
struct UnitRange {
  llvm::Value *first, *last;
};
UnitRange unit_range(Frame& frame, const planning::Stage& stage);

}  // namespace weft::codegen
