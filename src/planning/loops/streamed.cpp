#include "planning/loops/streamed.h"

#include <algorithm>

#include "base/target.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

bool is_whole_lines(const Stage& stage, DType dtype) {
  const ir::Dim& width = stage.domain.back();
  return width.is_constant() && width.constant() % stage.lanes == 0 &&
         stage.lanes * size_of(dtype) % target::kCacheLine == 0;
}

/// Whether the stage reads the value from memory. It reads its own values (`is_own`) in registers, except operands
/// of products.
bool reads_memory(const Schedule& schedule, const Stage& stage, ValueId value, bool is_own) {
  return std::ranges::any_of(stage.ops, [&](const Op* op) {
    if (is_own && !is_stage_product(*op)) return false;
    return std::ranges::any_of(op->operands, [&](ValueId operand) { return memory_of(schedule, operand) == value; });
  });
}

}  // namespace

std::set<ValueId> streamed_ys(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block) {
  std::set<ValueId> found;
  for (const Stage& stage : block.stages) {
    if (stage.lowering != Lowering::kFused) continue;
    for (const Op* op : stage.ops)
      for (ValueId result : op->results) {
        if (std::ranges::find(view.y_outs, result) == view.y_outs.end() || is_reduction(*op)) continue;
        if (!is_whole_lines(stage, schedule.program->type(result).dtype)) continue;
        const bool is_read = std::ranges::any_of(block.stages, [&](const Stage& reader) {
          return reads_memory(schedule, reader, result, &reader == &stage);
        });
        if (!is_read) found.insert(result);
      }
  }
  return found;
}

}  // namespace weft::planning
