#pragma once

#include "codegen/frame.h"

namespace weft::codegen {

/// Emits the whole loop of a scan as the frame's function: steps run inside it, for rows lo..hi-1 of the batch (all
/// rows when the scan is not batched) and the share unit/units of every stage's columns.
///
/// A step of a ragged scan does those of its rows that are ours. A row's carry goes to the result after the row's last
/// step, where that isn't the last of all.
///
/// Carries alternate between two buffers, the last step writing the result's own memory; ys are written in place in
/// their stacks. When columns are shared (units > 1), replicated stages write memory of the unit's own, and units wait
/// for each other, as ColumnSharing says.
void emit_scan(Frame& frame, const ir::Op& op);

}  // namespace weft::codegen
