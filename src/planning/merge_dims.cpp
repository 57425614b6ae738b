#include "planning/merge_dims.h"

#include <algorithm>

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

/// Whether the operand is dense in the domain's order, or one number repeated.
bool lies_like(const Schedule& schedule, ValueId value, const ir::Shape& domain) {
  const ir::Program& program = *schedule.program;
  auto def = schedule.definition.find(value);
  if (def != schedule.definition.end() && ir::is_constant(def->second->code)) return true;
  if (def != schedule.definition.end() && ir::is_repeated(def->second->code))
    return program.type(def->second->operands[0]).rank() == 0;
  return viewed(schedule, value) == value && program.type(value).shape == domain;
}

bool is_mergeable(const Schedule& schedule, const Stage& stage) {
  return stage.lowering == Lowering::kFused && std::ranges::all_of(stage.ops, [&](const Op* op) {
           return info(op->code).op_class == ir::OpClass::kElementwise &&
                  schedule.program->type(op->results[0]).shape == stage.domain &&
                  std::ranges::all_of(op->operands, [&](ValueId v) { return lies_like(schedule, v, stage.domain); });
         });
}

}  // namespace

void merge_dims(const Schedule& schedule, BlockSchedule& block, bool batched) {
  const size_t kept = batched ? 1 : 0;
  for (Stage& stage : block.stages) {
    if (stage.domain.size() <= kept + 1 || !is_mergeable(schedule, stage)) continue;
    ir::Dim columns(1);
    for (size_t i = kept; i < stage.domain.size(); ++i) columns = columns * stage.domain[i];
    stage.domain.resize(kept);
    stage.domain.push_back(columns);
  }
}

}  // namespace weft::planning
