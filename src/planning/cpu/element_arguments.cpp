#include <algorithm>

#include "planning/cpu/kernel_arguments.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::OpCode;

/// The types of runtime/calls/number_type.h.
bool is_number(DType dtype) { return has_kernels(dtype) || is_index(dtype); }

MaybeCall fold_arguments(Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.operands[0]);
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  if (!is_number(type.dtype) || dims.empty()) return {};
  runtime::FoldCall call{.dtype = type.dtype,
                         .is_sum = op.code == OpCode::kReduceSum,
                         .operand = schedule.buffer.at(op.operands[0]),
                         .result = schedule.buffer.at(op.results[0]),
                         .dims = {}};
  ir::Dim group(1);
  auto folded = [&](size_t dim) { return std::ranges::find(dims, static_cast<int64_t>(dim)) != dims.end(); };
  for (size_t i = 0; i < type.shape.size(); ++i) {
    group = group * type.shape[i];
    if (i + 1 < type.shape.size() && folded(i) == folded(i + 1)) continue;
    call.dims.push_back({schedule.expression(group), folded(i)});
    group = ir::Dim(1);
  }
  return call;
}

MaybeCall iota_arguments(Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  if (!is_number(type.dtype)) return {};
  const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
  return runtime::IotaCall{.dtype = type.dtype,
                           .result = schedule.buffer.at(op.results[0]),
                           .count = schedule.expression(element_count(type.shape)),
                           .size = schedule.expression(type.shape[dim]),
                           .step = schedule.expression(count_of(type.shape, dim + 1, type.shape.size()))};
}

MaybeCall size_arguments(Schedule& schedule, const Op& op) {
  const DType dtype = schedule.program->type(op.results[0]).dtype;
  if (!is_number(dtype)) return {};
  return runtime::SizeCall{
      .dtype = dtype, .result = schedule.buffer.at(op.results[0]), .size = schedule.expression(op.attr<ir::Dim>("of"))};
}

MaybeCall divide_arguments(Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  if (!is_index(type.dtype)) return {};
  return runtime::DivideCall{.dtype = type.dtype,
                             .remainder = op.code == OpCode::kRem,
                             .left = schedule.buffer.at(op.operands[0]),
                             .right = schedule.buffer.at(op.operands[1]),
                             .result = schedule.buffer.at(op.results[0]),
                             .count = schedule.expression(element_count(type.shape))};
}

constexpr Kernel kElementKernels[] = {
    {OpCode::kReduceSum, fold_arguments}, {OpCode::kReduceMax, fold_arguments}, {OpCode::kIota, iota_arguments},
    {OpCode::kSize, size_arguments},      {OpCode::kDiv, divide_arguments},     {OpCode::kRem, divide_arguments},
};

}  // namespace

std::span<const Kernel> element_kernels() { return kElementKernels; }

}  // namespace weft::planning
