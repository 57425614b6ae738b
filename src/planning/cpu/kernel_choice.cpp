#include "planning/cpu/kernel_choice.h"

#include <algorithm>

#include "planning/cpu/kernel_arguments.h"

namespace weft::planning {
namespace {

using ir::Op;

/// Calls visit(kernel) for each kernel for the op, the best first, until it returns true.
template <typename Visit>
void find_kernel(ir::OpCode code, Visit visit) {
  for (const auto& kernels : {matrix_kernels(), element_kernels(), movement_kernels()})
    for (const Kernel& kernel : kernels)
      if (kernel.op == code && visit(kernel)) return;
}

}  // namespace

runtime::KernelCall choose_kernel(Schedule& schedule, const Op& op) {
  const bool in_buffers =
      std::ranges::all_of(op.operands, [&](ir::ValueId operand) { return schedule.buffer.contains(operand); });
  MaybeCall call;
  find_kernel(op.code, [&](const Kernel& kernel) {
    if (kernel.views != OperandViews::kNone || in_buffers) call = kernel.arguments(schedule, op);
    return call.has_value();
  });
  return call.value_or(runtime::CallbackCall{});
}

OperandViews kernel_views(const ir::Program& program, const Op& op) {
  OperandViews best = OperandViews::kNone;
  find_kernel(op.code, [&](const Kernel& kernel) {
    best = kernel.views;
    return true;
  });
  return best == OperandViews::kColumns && !takes_columns(program, op) ? OperandViews::kNone : best;
}

}  // namespace weft::planning
