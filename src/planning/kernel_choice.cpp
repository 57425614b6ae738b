#include "planning/kernel_choice.h"

#include <algorithm>

#include "planning/kernel_arguments.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::OpCode;

struct Kernel {
  OpCode op;
  KernelArguments arguments;
};

/// The kernels of each op, the best first.
constexpr Kernel kKernels[] = {
    {OpCode::kPack, pack_arguments},
    {OpCode::kOuter, outer_arguments},
    {OpCode::kMatmul, product_arguments},
    {OpCode::kBatchMatmul, product_arguments},
    {OpCode::kReduceSum, column_sum_arguments},
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
  for (const Kernel& kernel : kKernels) {
    if (kernel.op != op.code) continue;
    if (auto call = kernel.arguments(schedule, op)) return *call;
  }
  return runtime::CallbackCall{};
}

}  // namespace weft::planning
