#include "planning/kernel_choice.h"

#include <algorithm>

#include "planning/kernel_arguments.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::OpCode;

/// What a kernel's operands may be.
enum class Operands {
  kBuffers,  ///< each lies in a buffer of its own
  kViews     ///< slices of columns too, which its arguments follow
};

struct Kernel {
  OpCode op;
  KernelArguments arguments;
  Operands operands = Operands::kBuffers;
};

/// The kernels of each op, the best first.
constexpr Kernel kKernels[] = {
    {OpCode::kPack, pack_arguments, Operands::kViews},
    {OpCode::kOuter, outer_arguments, Operands::kViews},
    {OpCode::kMatmul, product_arguments},
    {OpCode::kBatchMatmul, product_arguments},
    {OpCode::kReduceSum, column_sum_arguments, Operands::kViews},
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

runtime::KernelCall choose_kernel(Schedule& schedule, const Op& op) {
  const bool in_buffers =
      std::ranges::all_of(op.operands, [&](ir::ValueId operand) { return schedule.buffer.contains(operand); });
  for (const Kernel& kernel : kKernels) {
    if (kernel.op != op.code || (kernel.operands == Operands::kBuffers && !in_buffers)) continue;
    if (auto call = kernel.arguments(schedule, op)) return *call;
  }
  return runtime::CallbackCall{};
}

}  // namespace weft::planning
