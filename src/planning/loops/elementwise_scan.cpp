#include "planning/loops/elementwise_scan.h"

#include <algorithm>

namespace weft::planning {

using ir::Op;
using ir::ValueId;

bool is_elementwise_scan(const Schedule& schedule, const Op& scan) {
  const ir::ScanView view(scan);
  const ScanBuffers& buffers = schedule.scans.at(&scan);
  if (view.ragged || buffers.block.stages.size() != 1 || !buffers.scratch.empty()) return false;
  const Stage& stage = buffers.block.stages[0];
  if (stage.lowering != Lowering::kFused || stage.unroll != 0 || stage.has_reduction) return false;
  // A concatenation's result is wider than the domain.
  auto is_elementwise = [&](ValueId value) {
    return std::ranges::any_of(stage.ops, [&](const Op* op) {
      return info(op->code).op_class == ir::OpClass::kElementwise && std::ranges::count(op->results, value) > 0;
    });
  };
  if (!std::ranges::all_of(view.carry_outs, is_elementwise) || !std::ranges::all_of(view.y_outs, is_elementwise))
    return false;
  // An operand that is a carry has the domain's shape. A view of one may read other places.
  return std::ranges::all_of(stage.ops, [&](const Op* op) {
    return std::ranges::all_of(op->operands, [&](ValueId operand) {
      const ValueId memory = memory_of(schedule, operand);
      return operand == memory || std::ranges::count(view.carry_args, memory) == 0;
    });
  });
}

}  // namespace weft::planning
