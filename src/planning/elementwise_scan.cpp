#include "planning/elementwise_scan.h"

#include <algorithm>

namespace weft::planning {

using ir::Op;
using ir::ValueId;

namespace {

/// An elementwise op of a stage, not a product, a reduction or a concatenation.
const Op* maker(const Stage& stage, ValueId value) {
  const auto found = std::ranges::find_if(stage.ops, [&](const Op* op) {
    return info(op->code).op_class == ir::OpClass::kElementwise && std::ranges::count(op->results, value) > 0;
  });
  return found == stage.ops.end() ? nullptr : *found;
}

}  // namespace

bool is_elementwise_scan(const Schedule& schedule, const Op& scan) {
  const ir::ScanView view(scan);
  const ScanBuffers& buffers = schedule.scans.at(&scan);
  if (view.ragged || buffers.block.stages.size() != 1 || !buffers.scratch.empty()) return false;
  const Stage& stage = buffers.block.stages[0];
  if (stage.lowering != Lowering::kFused || stage.unroll != 0 || stage.has_reduction) return false;
  for (ValueId out : view.carry_outs)
    if (maker(stage, out) == nullptr) return false;
  for (ValueId out : view.y_outs)
    if (maker(stage, out) == nullptr) return false;
  // An operand that is a carry has the domain's shape. A view of one may read other places.
  return std::ranges::all_of(stage.ops, [&](const Op* op) {
    return std::ranges::all_of(op->operands, [&](ValueId operand) {
      const ValueId memory = memory_of(schedule, viewed(schedule, operand));
      return operand == memory || std::ranges::count(view.carry_args, memory) == 0;
    });
  });
}

}  // namespace weft::planning
