#pragma once

#include <vector>

#include "codegen/frame.h"

namespace weft::codegen {

/// Emits the whole loop of a scan as the frame's function: steps run inside it, for rows lo..hi-1 of the batch (all
/// rows when the scan is not batched) and the share unit/units of every stage's columns.
///
/// A step of a ragged scan does those of its rows that are ours. A row's carry goes to the result after the row's last
/// step, where that isn't the last of all.
///
/// Carries alternate between two buffers, the last step writing the result's own memory; ys are written in place in
/// their stacks. When columns are shared (units > 1), barriers stand before the stages that barriers_before() names.
void emit_scan(Frame& frame, const ir::Op& op);

/// For each stage of the region whether threads that share its columns must wait before it: when it reads, elsewhere
/// than at its own columns, what another thread may have written since the last barrier.
std::vector<bool> barriers_before(const Frame& frame, const ir::ScanView& view, const BlockSchedule& block);

}  // namespace weft::codegen
