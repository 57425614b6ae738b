#include <algorithm>

#include "planning/cpu/kernel_arguments.h"
#include "planning/cpu/prepack.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::ValueId;
using runtime::MatrixPlace;

/// A value as rows: all dims but the last count rows. For slices of columns, the place in the memory that they view.
MatrixPlace place_of(Schedule& schedule, ValueId value) {
  const Shape& shape = schedule.program->type(value).shape;
  MatrixPlace matrix{.buffer = 0,
                     .rows = schedule.expression(count_of(shape, 0, shape.size() - 1)),
                     .columns = shape.back().constant(),
                     .skip = 0,
                     .stride = 0};
  ValueId root = value;
  while (viewed(schedule, root) != root) {
    const Op& slice = *schedule.definition.at(root);
    matrix.skip += slice.attr<int64_t>("start");
    root = slice.operands[0];
  }
  matrix.buffer = schedule.buffer.at(root);
  matrix.stride = schedule.program->type(root).shape.back().constant();
  return matrix;
}

/// The rows of a value whose columns may be joined from several ranges: one place a range, in order.
std::vector<MatrixPlace> places_of(Schedule& schedule, ValueId value) {
  auto found = schedule.definition.find(value);
  if (found == schedule.definition.end() || !schedule.rules.is_ranges(*found->second))
    return {place_of(schedule, value)};
  std::vector<MatrixPlace> ranges;
  for (ValueId part : found->second->operands) ranges.push_back(place_of(schedule, part));
  return ranges;
}

bool is_matrix(const ir::Type& type) { return type.rank() >= 1 && type.shape.back().is_constant(); }

/// Whether kernels for outer products take the value as an operand. They take bf16 too.
bool is_factor(const Schedule& schedule, ValueId value) {
  const ir::Type& type = schedule.program->type(value);
  return is_matrix(type) && (has_kernels(type.dtype) || type.dtype == DType::kBF16);
}

/// Whether the dims are the leading ones, in any order.
bool are_leading(std::vector<int64_t> dims) {
  std::ranges::sort(dims);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i)) return false;
  return true;
}

}  // namespace

ir::Dim count_of(const Shape& shape, size_t first, size_t last) {
  ir::Dim count(1);
  for (size_t i = first; i < last; ++i) count = count * shape[i];
  return count;
}

bool takes_columns(const ir::Program& program, const Op& op) {
  const ir::Type& type = program.type(op.operands[0]);
  if (!has_kernels(type.dtype) && type.dtype != DType::kBF16) return false;
  if (op.code == OpCode::kOuter) return true;
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  return static_cast<int64_t>(dims.size()) == type.rank() - 1 && std::ranges::find(dims, type.rank() - 1) == dims.end();
}

namespace {

MaybeCall pack_arguments(Schedule& schedule, const Op& op) {
  const std::optional<Panels> panels = kernel_panels(*schedule.program, op);
  if (!panels) return {};
  const ir::Type& source = schedule.program->type(op.operands[0]);
  const PackSource from = source_of(schedule, op);
  runtime::PackCall call;
  call.dtype = source.dtype;
  call.transposed = op.attr_or<bool>("transpose_b", false);
  call.pairs = panels->weights == DType::kBF16;
  call.source = schedule.buffer.at(from.root);
  call.destination = schedule.buffer.at(op.results[0]);
  call.groups = panels->groups;
  call.unroll = panels->unroll;
  call.k = source.shape[call.transposed ? 1 : 0].constant();
  call.n = panels->columns / call.groups;
  call.ld = from.ld;
  call.skip = from.skip;
  call.panels = schedule.program->type(op.results[0]).shape[0].constant();
  const PackUses& uses = schedule.packs.at(op.results[0]);
  call.may_be_left_out = uses.may_be_left_out;
  if (uses.may_be_left_out) {
    for (const ir::Dim& rows : uses.rows) call.rows.push_back(schedule.expression(rows));
    for (const ir::Dim& times : uses.times) call.times.push_back(schedule.expression(times));
  }
  return call;
}

MaybeCall outer_arguments(Schedule& schedule, const Op& op) {
  if (!is_factor(schedule, op.operands[0]) || !is_factor(schedule, op.operands[1])) return {};
  return runtime::OuterCall{.dtype = schedule.program->type(op.results[0]).dtype,
                            .left = places_of(schedule, op.operands[0]),
                            .right = places_of(schedule, op.operands[1]),
                            .result = schedule.buffer.at(op.results[0])};
}

/// An outer product of operands whose number of columns only a call knows is a product of two matrices.
MaybeCall outer_product_arguments(Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  const Shape& rows = schedule.program->type(op.operands[0]).shape;
  if (!has_kernels(type.dtype) || schedule.program->type(op.operands[0]).dtype != type.dtype) return {};
  return runtime::ProductCall{.dtype = type.dtype,
                              .left = schedule.buffer.at(op.operands[0]),
                              .right = schedule.buffer.at(op.operands[1]),
                              .result = schedule.buffer.at(op.results[0]),
                              .batches = schedule.expression(ir::Dim(1)),
                              .m = schedule.expression(type.shape[0]),
                              .n = schedule.expression(type.shape[1]),
                              .k = schedule.expression(count_of(rows, 0, rows.size() - 1)),
                              .transpose_left = true,
                              .transpose_right = false};
}

/// A sum over leading dims whose kept dims are constant: the operand is a matrix of the kept columns.
MaybeCall column_sum_arguments(Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.operands[0]);
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  const ir::Dim kept = count_of(type.shape, dims.size(), type.shape.size());
  if (!has_kernels(type.dtype) && type.dtype != DType::kBF16) return {};
  if (!kept.is_constant() || !are_leading(dims)) return {};
  runtime::ColumnSumCall call{.dtype = type.dtype, .operand = {}, .result = schedule.buffer.at(op.results[0])};
  if (dims.size() + 1 == type.shape.size())
    call.operand = places_of(schedule, op.operands[0]);
  else
    call.operand = {{.buffer = schedule.buffer.at(op.operands[0]),
                     .rows = schedule.expression(count_of(type.shape, 0, dims.size())),
                     .columns = kept.constant(),
                     .skip = 0,
                     .stride = kept.constant()}};
  return call;
}

MaybeCall product_arguments(Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  if (!has_kernels(type.dtype)) return {};
  const Shape& a = schedule.program->type(op.operands[0]).shape;
  const Shape& b = schedule.program->type(op.operands[1]).shape;
  const bool batched = op.code == OpCode::kBatchMatmul;
  const bool transpose_a = op.attr_or("transpose_a", false), transpose_b = op.attr_or("transpose_b", false);
  const size_t leading = batched ? type.shape.size() - 2 : 0;
  return runtime::ProductCall{.dtype = type.dtype,
                              .left = schedule.buffer.at(op.operands[0]),
                              .right = schedule.buffer.at(op.operands[1]),
                              .result = schedule.buffer.at(op.results[0]),
                              .batches = schedule.expression(count_of(type.shape, 0, leading)),
                              .m = schedule.expression(count_of(type.shape, leading, type.shape.size() - 1)),
                              .n = schedule.expression(b[b.size() - (transpose_b ? 2 : 1)]),
                              .k = schedule.expression(a[a.size() - (batched && transpose_a ? 2 : 1)]),
                              .transpose_left = transpose_a,
                              .transpose_right = transpose_b};
}

constexpr Kernel kMatrixKernels[] = {
    {OpCode::kPack, pack_arguments, OperandViews::kMatrix},
    {OpCode::kOuter, outer_arguments, OperandViews::kColumns},
    {OpCode::kOuter, outer_product_arguments},
    {OpCode::kMatmul, product_arguments},
    {OpCode::kBatchMatmul, product_arguments},
    {OpCode::kReduceSum, column_sum_arguments, OperandViews::kColumns},
};

}  // namespace

std::span<const Kernel> matrix_kernels() { return kMatrixKernels; }

}  // namespace weft::planning
