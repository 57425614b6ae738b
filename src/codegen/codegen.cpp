#include "codegen/codegen.h"

#include "codegen/row_copy.h"
#include "codegen/rows.h"
#include "codegen/scan.h"

namespace weft::codegen {
namespace {

using planning::Lowering;

/// The addresses that a value of the block is stored to.
std::vector<llvm::Value*> places(Frame& frame, ir::ValueId value) {
  std::vector<llvm::Value*> all{frame.address(value)};
  if (auto further = frame.schedule.also.find(value); further != frame.schedule.also.end())
    for (int64_t buffer : further->second) all.push_back(frame.buffer(buffer));
  return all;
}

void generate_rows(Frame& frame, const planning::BlockSchedule& block, const planning::Stage& stage) {
  for (const ir::Op* op : stage.ops)
    for (ir::ValueId result : op->results)
      if (block.stored.contains(result)) frame.targets[result] = places(frame, result);
  if (stage.lowering == Lowering::kRowCopy)
    emit_row_copy(frame, stage, frame.lo, frame.hi);
  else
    emit_rows(frame, stage, frame.lo, frame.hi, true);
}

using Kind = runtime::StagePlan::Kind;

void generate_stages(planning::Schedule& schedule, llvm::Module& module, const planning::BlockSchedule& block,
                     const std::vector<runtime::StagePlan>& plans) {
  for (size_t i = 0; i < block.stages.size(); ++i) {
    const planning::Stage& stage = block.stages[i];
    if (plans[i].kind == Kind::kCall) continue;
    if (auto control = schedule.controls.find(stage.ops[0]); control != schedule.controls.end()) {
      for (size_t k = 0; k < plans[i].control.regions.size(); ++k)
        generate_stages(schedule, module, control->second.blocks[k], plans[i].control.regions[k]);
      continue;
    }
    Frame frame(schedule, module, plans[i].symbol);
    if (plans[i].kind == Kind::kScan)
      emit_scan(frame, *stage.ops[0]);
    else
      generate_rows(frame, block, stage);
    frame.finish();
  }
}

}  // namespace

std::unique_ptr<llvm::Module> generate(planning::Schedule& schedule, llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>("weft", context);
  generate_stages(schedule, *module, schedule.body, schedule.plan.stages);
  return module;
}

}  // namespace weft::codegen
