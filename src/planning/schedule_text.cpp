#include "planning/schedule_text.h"

#include "ir/text/printer.h"

namespace weft::planning {
namespace {

using ir::Op;

class Notes {
 public:
  explicit Notes(const Schedule& schedule) : schedule_(schedule) {
    add(schedule.body);
    for (const auto& [op, scan] : schedule.scans) add(scan.block);
    for (const auto& [op, control] : schedule.controls)
      for (const BlockSchedule& block : control.blocks) add(block);
  }

  std::string operator()(const Op& op) const {
    auto stage = stages_.find(&op);
    if (stage == stages_.end()) return schedule_.rules.is_ranges(op) ? "a view" : "";
    std::string text = fmt::format("stage {}", stage->second);
    if (op.code != ir::OpCode::kScan) return text;
    const ScanDecision& decision = schedule_.rules.decision(op);
    if (decision.batched) text += ", batched";
    if (decision.lowering == Lowering::kLoop) text += ", a loop: " + decision.reason;
    if (decision.lowering == Lowering::kCall) text += ", interpreted: " + decision.reason;
    return text;
  }

 private:
  void add(const BlockSchedule& block) {
    for (size_t i = 0; i < block.stages.size(); ++i)
      for (const Op* op : block.stages[i].ops) stages_[op] = i;
  }

  const Schedule& schedule_;
  std::map<const Op*, size_t> stages_;
};

}  // namespace

std::string write_lowered(const Schedule& schedule) { return ir::print(*schedule.program, Notes(schedule)); }

}  // namespace weft::planning
