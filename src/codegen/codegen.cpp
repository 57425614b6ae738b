#include "codegen/codegen.h"

#include "codegen/rows.h"
#include "codegen/scan.h"

namespace weft::codegen {
namespace {

using passes::Lowering;

void generate_stage(Schedule& schedule, llvm::Module& module, size_t index) {
  const Stage& stage = schedule.body.stages[index];
  if (schedule.plan.stages[index].kind == runtime::StagePlan::Kind::kCall) return;
  Frame frame(schedule, module, schedule.plan.stages[index].symbol);
  if (stage.lowering == Lowering::kScan) {
    emit_scan(frame, *stage.ops[0]);
  } else {
    for (const ir::Op* op : stage.ops)
      for (ir::ValueId result : op->results)
        if (schedule.body.stored.contains(result)) frame.targets[result] = {frame.address(result)};
    if (stage.lowering == Lowering::kRowCopy)
      emit_row_copy(frame, stage, frame.lo, frame.hi);
    else
      emit_rows(frame, stage, frame.lo, frame.hi, true);
  }
  frame.finish();
}

}  // namespace

std::unique_ptr<llvm::Module> generate(Schedule& schedule, llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>("weft", context);
  for (size_t i = 0; i < schedule.body.stages.size(); ++i) generate_stage(schedule, *module, i);
  return module;
}

}  // namespace weft::codegen
