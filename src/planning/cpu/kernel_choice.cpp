#include "planning/cpu/kernel_choice.h"

#include <algorithm>

#include "planning/cpu/kernel_arguments.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::OpCode;

struct Kernel {
  OpCode op;
  KernelArguments arguments;
  OperandViews views = OperandViews::kNone;  ///< of its operands; others lie in buffers of their own
};

/// The kernels of each op, the best first.
constexpr Kernel kKernels[] = {
    {OpCode::kPack, pack_arguments, OperandViews::kMatrix},
    {OpCode::kOuter, outer_arguments, OperandViews::kColumns},
    {OpCode::kMatmul, product_arguments},
    {OpCode::kBatchMatmul, product_arguments},
    {OpCode::kReduceSum, column_sum_arguments, OperandViews::kColumns},
    {OpCode::kReduceSum, fold_arguments},
    {OpCode::kReduceMax, fold_arguments},
    {OpCode::kIota, iota_arguments},
    {OpCode::kSize, size_arguments},
    {OpCode::kDiv, divide_arguments},
    {OpCode::kRem, divide_arguments},
    {OpCode::kTranspose, transpose_arguments},
    {OpCode::kReverse, reverse_arguments},
    {OpCode::kSlice, slice_arguments},
    {OpCode::kBroadcast, broadcast_arguments},
    {OpCode::kConcat, concat_arguments},
    {OpCode::kPad, pad_arguments},
    {OpCode::kGather, gather_arguments},
    {OpCode::kScatter, scatter_arguments},
    {OpCode::kScatterAdd, scatter_add_arguments},
};

}  // namespace

runtime::KernelCall choose_kernel(const Schedule& schedule, const Op& op) {
  const bool in_buffers =
      std::ranges::all_of(op.operands, [&](ir::ValueId operand) { return schedule.buffer.contains(operand); });
  for (const Kernel& kernel : kKernels) {
    if (kernel.op != op.code || (kernel.views == OperandViews::kNone && !in_buffers)) continue;
    if (auto call = kernel.arguments(schedule, op)) return *call;
  }
  return runtime::CallbackCall{};
}

OperandViews kernel_views(const ir::Program& program, const Op& op) {
  const auto* best = std::ranges::find(kKernels, op.code, &Kernel::op);
  if (best == std::end(kKernels)) return OperandViews::kNone;
  return best->views == OperandViews::kColumns && !takes_columns(program, op) ? OperandViews::kNone : best->views;
}

}  // namespace weft::planning
