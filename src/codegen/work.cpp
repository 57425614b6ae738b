#include "codegen/work.h"

#include <algorithm>

namespace weft::codegen {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;

constexpr int64_t kPerElement = 4;

bool is_on_rows(const ir::Program& program, const Op& op, const ir::Ragged& ragged) {
  auto on_rows = [&](ValueId v) { return has_rows(program.type(v), ragged); };
  return op.regions.empty() && (std::ranges::any_of(op.operands, on_rows) || std::ranges::any_of(op.results, on_rows));
}

}  // namespace

ir::Shape WorkCounter::shape_of(ValueId value, const ir::Ragged* ragged) const {
  const ir::Type& type = program_.type(value);
  return ragged && has_rows(type, *ragged) ? ir::stacked(type, ir::Dim(1), *ragged).shape : type.shape;
}

void WorkCounter::count_scan(const Op& op, const ir::Dim& times) {
  ir::ScanView view(op);
  for (const Op& inner : view.region.ops) {
    if (view.ragged && is_on_rows(program_, inner, *view.ragged))
      count(inner, times, &*view.ragged);
    else
      count(inner, times * view.length, nullptr);
  }
}

void WorkCounter::count_regions(const Op& op, const ir::Dim& times) {
  constexpr int64_t kStepsOfWhile = 16;
  for (const ir::Block& region : op.regions)
    for (const Op& inner : region.ops)
      count(inner, op.code == OpCode::kWhile ? times * ir::Dim(kStepsOfWhile) : times, nullptr);
}

void WorkCounter::count(const Op& op, const ir::Dim& times, const ir::Ragged* ragged) {
  if (op.code == OpCode::kScan) return count_scan(op, times);
  if (!op.regions.empty()) return count_regions(op, times);
  if (op.results.empty() || passes::is_view(op.code)) return;
  ir::Dim elements = element_count(shape_of(op.results[0], ragged)) * times;
  ir::Shape first = op.operands.empty() ? ir::Shape{} : shape_of(op.operands[0], ragged);
  switch (op.code) {
    case OpCode::kMatmulPacked:
    case OpCode::kMatmul:
      elements = elements * first.back();
      break;
    case OpCode::kBatchMatmul:
      elements = elements * first[first.size() - (op.attr_or<bool>("transpose_a", false) ? 2 : 1)];
      break;
    case OpCode::kOuter:
      elements = element_count(first) * program_.type(op.operands[1]).shape.back() * times;
      break;
    default:
      if (passes::is_reduction(op)) elements = element_count(first) * times;
      elements = elements * ir::Dim(kPerElement);
  }
  terms_.push_back(schedule_.expression(elements));
}

}  // namespace weft::codegen
