#include "planning/bounded_size.h"
#include "planning/cpu/kernel_arguments.h"

namespace weft::planning {
namespace {

using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::Shape;
using ir::ValueId;
using runtime::CopyCall;

/// The strides of a dense value, in elements. Strides can overflow only for a value without elements, of which nothing
/// is copied.
std::vector<Dim> steps_of(const Shape& shape) {
  std::vector<Dim> steps(shape.size(), Dim(1));
  for (size_t i = shape.size(); i-- > 1;) steps[i - 1] = bounded_product(steps[i], shape[i]);
  return steps;
}

size_t dim_of(const Op& op) { return static_cast<size_t>(op.attr<int64_t>("dim")); }

/// Makes a CopyCall of parts. Each part copies a box of the result's elements from the source.
class CopyMaker {
 public:
  CopyMaker(Schedule& schedule, const Op& op) : schedule_(schedule), op_(op) {
    call_.destination = schedule.buffer.at(op.results[0]);
    call_.element_size = size_of(schedule.program->type(op.results[0]).dtype);
  }

  const Shape& source(size_t operand = 0) const { return schedule_.program->type(op_.operands[operand]).shape; }
  const Shape& result() const { return schedule_.program->type(op_.results[0]).shape; }

  /// `steps`: the source's strides, one for each dim of the result.
  CopyCall::Part& add(size_t operand, const Shape& box, const std::vector<Dim>& steps) {
    CopyCall::Part part;
    part.source = schedule_.buffer.at(op_.operands[operand]);
    const std::vector<Dim> to = steps_of(result());
    for (size_t i = 0; i < box.size(); ++i)
      part.dims.push_back(
          {schedule_.expression(box[i]), schedule_.expression(steps[i]), schedule_.expression(to[i]), false});
    call_.parts.push_back(std::move(part));
    return call_.parts.back();
  }

  CopyCall take() { return std::move(call_); }

 private:
  Schedule& schedule_;
  const Op& op_;
  CopyCall call_;
};

/// A table's rows: its first dim counts them, and the elements of the others make up a row.
struct Table {
  runtime::DimExpr rows, columns;
};

Table table_of(Schedule& schedule, ValueId value) {
  const Shape& shape = schedule.program->type(value).shape;
  return {schedule.expression(shape[0]), schedule.expression(count_of(shape, 1, shape.size()))};
}

runtime::IndexPlace index_of(Schedule& schedule, ValueId value) {
  const ir::Type& type = schedule.program->type(value);
  return {schedule.buffer.at(value), schedule.expression(element_count(type.shape)), type.dtype == DType::kI64};
}

MaybeCall transpose_arguments(Schedule& schedule, const Op& op) {
  CopyMaker copy(schedule, op);
  const std::vector<Dim> source = steps_of(copy.source());
  std::vector<Dim> steps;
  for (int64_t dim : op.attr<std::vector<int64_t>>("perm")) steps.push_back(source[static_cast<size_t>(dim)]);
  copy.add(0, copy.result(), steps);
  return copy.take();
}

MaybeCall reverse_arguments(Schedule& schedule, const Op& op) {
  CopyMaker copy(schedule, op);
  copy.add(0, copy.result(), steps_of(copy.source())).dims[dim_of(op)].reversed = true;
  return copy.take();
}

MaybeCall slice_arguments(Schedule& schedule, const Op& op) {
  CopyMaker copy(schedule, op);
  const std::vector<Dim> steps = steps_of(copy.source());
  const Dim start = bounded_product(size_attr(op, "start"), steps[dim_of(op)]);
  copy.add(0, copy.result(), steps).source_start = schedule.expression(start);
  return copy.take();
}

MaybeCall broadcast_arguments(Schedule& schedule, const Op& op) {
  CopyMaker copy(schedule, op);
  const std::vector<Dim> source = steps_of(copy.source());
  std::vector<Dim> steps(copy.result().size(), Dim(0));
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  for (size_t i = 0; i < dims.size(); ++i) steps[static_cast<size_t>(dims[i])] = source[i];
  copy.add(0, copy.result(), steps);
  return copy.take();
}

MaybeCall concat_arguments(Schedule& schedule, const Op& op) {
  CopyMaker copy(schedule, op);
  const Dim step = steps_of(copy.result())[dim_of(op)];
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Shape& part = copy.source(i);
    copy.add(i, part, steps_of(part)).length = schedule.expression(bounded_product(part[dim_of(op)], step));
  }
  return copy.take();
}

MaybeCall pad_arguments(Schedule& schedule, const Op& op) {
  const Shape& from = schedule.program->type(op.operands[0]).shape;
  const ir::Type& to = schedule.program->type(op.results[0]);
  const size_t dim = dim_of(op);
  const Dim inner = steps_of(to.shape)[dim];
  auto part = [&](const Dim& size) { return schedule.expression(bounded_product(size, inner)); };
  return runtime::PadCall{.element_size = size_of(to.dtype),
                          .source = schedule.buffer.at(op.operands[0]),
                          .destination = schedule.buffer.at(op.results[0]),
                          .rows = schedule.expression(bounded_count(std::span(to.shape).first(dim))),
                          .row = part(to.shape[dim]),
                          .low = part(size_attr(op, "low")),
                          .taken = part(from[dim])};
}

MaybeCall gather_arguments(Schedule& schedule, const Op& op) {
  if (!is_index(schedule.program->type(op.operands[1]).dtype)) return {};
  Table table = table_of(schedule, op.operands[0]);
  return runtime::GatherCall{.element_size = size_of(schedule.program->type(op.results[0]).dtype),
                             .table = schedule.buffer.at(op.operands[0]),
                             .result = schedule.buffer.at(op.results[0]),
                             .index = index_of(schedule, op.operands[1]),
                             .rows = std::move(table.rows),
                             .columns = std::move(table.columns)};
}

MaybeCall scatter_arguments(Schedule& schedule, const Op& op) {
  if (!is_index(schedule.program->type(op.operands[1]).dtype)) return {};
  Table table = table_of(schedule, op.results[0]);
  return runtime::ScatterCall{.element_size = size_of(schedule.program->type(op.results[0]).dtype),
                              .table = schedule.buffer.at(op.operands[0]),
                              .updates = schedule.buffer.at(op.operands[2]),
                              .result = schedule.buffer.at(op.results[0]),
                              .index = index_of(schedule, op.operands[1]),
                              .rows = std::move(table.rows),
                              .columns = std::move(table.columns)};
}

MaybeCall scatter_add_arguments(Schedule& schedule, const Op& op) {
  const DType dtype = schedule.program->type(op.results[0]).dtype;
  if (!is_index(schedule.program->type(op.operands[0]).dtype) || !has_kernels(dtype)) return {};
  Table table = table_of(schedule, op.results[0]);
  return runtime::ScatterAddCall{.dtype = dtype,
                                 .updates = schedule.buffer.at(op.operands[1]),
                                 .result = schedule.buffer.at(op.results[0]),
                                 .index = index_of(schedule, op.operands[0]),
                                 .rows = std::move(table.rows),
                                 .columns = std::move(table.columns)};
}

/// A value's buffer and its number of rows along the op's dim.
runtime::RowsPlace rows_of(Schedule& schedule, const Op& op, ValueId value) {
  return {schedule.buffer.at(value), schedule.expression(schedule.program->type(value).shape[dim_of(op)])};
}

runtime::RowBlocks blocks_of(Schedule& schedule, const Op& op) {
  const ir::Type& type = schedule.program->type(op.results[0]);
  const std::span<const Dim> shape(type.shape);
  return {.element_size = size_of(type.dtype),
          .dim = op.attr<int64_t>("dim"),
          .outer = schedule.expression(bounded_count(shape.first(dim_of(op)))),
          .inner = schedule.expression(bounded_count(shape.subspan(dim_of(op) + 1)))};
}

MaybeCall dynamic_slice_arguments(Schedule& schedule, const Op& op) {
  return runtime::DynamicSliceCall{.blocks = blocks_of(schedule, op),
                                   .source = rows_of(schedule, op, op.operands[0]),
                                   .result = rows_of(schedule, op, op.results[0]),
                                   .start = schedule.buffer.at(op.operands[1])};
}

MaybeCall dynamic_update_arguments(Schedule& schedule, const Op& op) {
  return runtime::DynamicUpdateCall{.blocks = blocks_of(schedule, op),
                                    .source = rows_of(schedule, op, op.operands[0]),
                                    .update = rows_of(schedule, op, op.operands[1]),
                                    .result = schedule.buffer.at(op.results[0]),
                                    .start = schedule.buffer.at(op.operands[2])};
}

constexpr Kernel kMovementKernels[] = {
    {OpCode::kTranspose, transpose_arguments},
    {OpCode::kReverse, reverse_arguments},
    {OpCode::kSlice, slice_arguments},
    {OpCode::kBroadcast, broadcast_arguments},
    {OpCode::kConcat, concat_arguments},
    {OpCode::kPad, pad_arguments},
    {OpCode::kGather, gather_arguments},
    {OpCode::kScatter, scatter_arguments},
    {OpCode::kScatterAdd, scatter_add_arguments},
    {OpCode::kDynamicSlice, dynamic_slice_arguments},
    {OpCode::kDynamicUpdate, dynamic_update_arguments},
};

}  // namespace

std::span<const Kernel> movement_kernels() { return kMovementKernels; }

}  // namespace weft::planning
