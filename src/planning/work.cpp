#include "planning/work.h"

#include <algorithm>

#include "base/target.h"
#include "planning/bounded_size.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;

bool is_on_rows(const ir::Program& program, const Op& op, const ir::Ragged& ragged) {
  auto on_rows = [&](ValueId v) { return has_rows(program.type(v), ragged); };
  return op.regions.empty() && (std::ranges::any_of(op.operands, on_rows) || std::ranges::any_of(op.results, on_rows));
}

}  // namespace

ir::Shape WorkCounter::shape_of(ValueId value, const ir::Ragged* ragged) const {
  const ir::Type& type = program_.type(value);
  return ragged && has_rows(type, *ragged) ? ir::stacked(type, ir::Dim(1), *ragged).shape : type.shape;
}

void WorkCounter::count_scan(const Op& op, const ir::Dim& repeats) {
  ir::ScanView view(op);
  for (const Op& inner : view.region.ops) {
    if (view.ragged && is_on_rows(program_, inner, *view.ragged))
      count(inner, repeats, &*view.ragged);
    else
      count(inner, bounded_product(repeats, view.length), nullptr);
  }
}

void WorkCounter::count_regions(const Op& op, const ir::Dim& repeats) {
  for (const ir::Block& region : op.regions)
    for (const Op& inner : region.ops)
      count(inner, op.code == OpCode::kWhile ? bounded_product(repeats, ir::Dim(target::kStepsOfWhile)) : repeats,
            nullptr);
}

void WorkCounter::count(const Op& op, const ir::Dim& repeats, const ir::Ragged* ragged) {
  if (op.code == OpCode::kScan) return count_scan(op, repeats);
  if (!op.regions.empty()) return count_regions(op, repeats);
  if (op.results.empty() || is_view(op.code)) return;
  // A pack that may be left out isn't counted. It would matter only beside products of few rows, and for these a run
  // leaves it out; other products take much longer than their packs.
  if (pack_that_may_be_left_out(schedule_, op.results[0])) return;
  ir::Dim elements = bounded_product(bounded_count(shape_of(op.results[0], ragged)), repeats);
  ir::Shape first = op.operands.empty() ? ir::Shape{} : shape_of(op.operands[0], ragged);
  if (info(op.code).op_class == ir::OpClass::kProduct) {
    for (size_t dim : ir::summed_dims(op, first.size())) elements = bounded_product(elements, first[dim]);
  } else {
    if (is_reduction(op)) elements = bounded_product(bounded_count(first), repeats);
    elements = bounded_product(elements, ir::Dim(target::kWorkPerElement));
  }
  terms_.push_back(schedule_.expression(elements));
}

}  // namespace weft::planning
