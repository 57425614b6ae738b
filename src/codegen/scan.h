#pragma once

#include "codegen/frame.h"

namespace weft::codegen {

/// Emits the whole loop of a scan as the frame's function. It runs all steps, for rows lo..hi-1 of the batch (all rows
/// if the scan is not batched) and share `unit` of `units` of every stage's columns.
///
/// A step of a ragged scan computes those of its rows that are in lo..hi-1. A row that ends before the last step copies
/// its carry to the result as it ends.
///
/// Carries alternate between two buffers; the last step stores to the results. Each y is stored in its place in the
/// stack. When columns are shared (units > 1), replicated stages store to memory of the unit's own, and barriers stand
/// where ColumnSharing puts them.
void emit_scan(Frame& frame, const ir::Op& op);

}  // namespace weft::codegen
