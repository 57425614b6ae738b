#include "planning/small_copy.h"

#include <algorithm>

#include "planning/lowering.h"
#include "planning/view.h"

namespace weft::planning {
namespace {

using ir::Dim;
using ir::Op;
using ir::Shape;

bool is_constant(const Shape& shape) { return std::ranges::all_of(shape, &Dim::is_constant); }

/// How far apart the elements of a dense value are along each dim; the shape is constant.
std::vector<int64_t> constant_steps_of(const Shape& shape) {
  std::vector<int64_t> steps(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i].constant();
  return steps;
}

runtime::DimExpr number(Schedule& schedule, int64_t value) { return schedule.expression(Dim(value)); }

/// The part of a copy for one operand: from the operand's memory to its elements in the result, whose strides are `to`.
std::optional<runtime::CopyCall::Part> part_of(Schedule& schedule, ir::ValueId operand,
                                               const std::vector<int64_t>& to) {
  const Shape& shape = schedule.program->type(operand).shape;
  const View view = resolve(schedule, operand, shape);
  const Shape& root = schedule.program->type(view.root).shape;
  const auto buffer = schedule.buffer.find(view.root);
  if (buffer == schedule.buffer.end() || !is_constant(root)) return {};
  const std::vector<int64_t> from = constant_steps_of(root);
  std::vector<int64_t> steps(shape.size(), 0);
  int64_t start = 0;
  for (size_t i = 0; i < root.size(); ++i) {
    start += view.start[i] * from[i];
    if (view.from[i] >= 0) steps[static_cast<size_t>(view.from[i])] = from[i];
  }
  runtime::CopyCall::Part part{.source = buffer->second, .source_start = number(schedule, start), .dims = {}};
  for (size_t i = 0; i < shape.size(); ++i)
    part.dims.push_back({number(schedule, shape[i].constant()), number(schedule, steps[i]), number(schedule, to[i])});
  return part;
}

}  // namespace

std::optional<runtime::CopyCall> small_copy(Schedule& schedule, const Stage& stage) {
  constexpr int64_t kMost = 1 << 16;  // in elements
  const Op& op = *stage.ops[0];
  const bool is_code = stage.lowering == Lowering::kFused || stage.lowering == Lowering::kRowCopy;
  const bool is_concat = ir::is_join(op.code);
  const ir::Type& type = schedule.program->type(op.results[0]);
  const auto buffer = schedule.buffer.find(op.results[0]);
  const bool is_copy =
      is_code && stage.ops.size() == 1 && (is_concat || ir::elements_of(op.code) == ir::Elements::kSame);
  if (!is_copy || type.shape.empty() || !is_constant(type.shape) || element_count(type.shape).constant() > kMost)
    return {};
  const auto also = schedule.also.find(op.results[0]);
  if (buffer == schedule.buffer.end() || (also != schedule.also.end() && !also->second.empty())) return {};
  runtime::CopyCall call{.element_size = size_of(type.dtype), .destination = buffer->second, .parts = {}};
  const std::vector<int64_t> to = constant_steps_of(type.shape);
  for (ir::ValueId operand : op.operands) {
    auto part = part_of(schedule, operand, to);
    if (!part) return {};
    if (is_concat) {
      const auto dim = static_cast<size_t>(op.attr<int64_t>("dim"));
      part->length = number(schedule, schedule.program->type(operand).shape[dim].constant() * to[dim]);
    }
    call.parts.push_back(*std::move(part));
  }
  return call;
}

}  // namespace weft::planning
