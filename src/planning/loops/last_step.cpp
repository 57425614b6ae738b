#include "planning/loops/last_step.h"

#include "passes/rewrite.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

/// The values that must be in memory after the last step.
std::set<ValueId> wanted_results(const Schedule& schedule, const ir::ScanView& view, const std::set<ValueId>& used) {
  std::set<ValueId> wanted;
  for (ValueId y : view.y_outs) wanted.insert(memory_of(schedule, y));
  for (size_t i = 0; i < view.carry_outs.size(); ++i)
    if (used.contains(view.carry_results[i])) wanted.insert(memory_of(schedule, view.carry_outs[i]));
  return wanted;
}

}  // namespace

std::vector<bool> stages_for_next_step(const Schedule& schedule, const ir::ScanView& view, const BlockSchedule& block,
                                       const std::set<ValueId>& used) {
  std::vector<bool> all(block.stages.size());
  if (view.ragged) return all;  // rows have their last steps at different times
  std::set<ValueId> wanted = wanted_results(schedule, view, used);
  for (size_t i = block.stages.size(); i-- > 0;) {
    const Stage& stage = block.stages[i];
    all[i] = true;
    for (const Op* op : stage.ops)
      for (ValueId result : op->results) all[i] = all[i] && !(block.stored.contains(result) && wanted.contains(result));
    if (all[i]) continue;
    for (const Op* op : stage.ops)
      passes::for_each_use(*op, [&](ValueId operand) { wanted.insert(memory_of(schedule, operand)); });
  }
  return all;
}

}  // namespace weft::planning
