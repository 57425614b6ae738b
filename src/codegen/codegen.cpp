#include "codegen/codegen.h"

#include <algorithm>
#include <utility>

#include "codegen/isa.h"
#include "codegen/row_copy.h"
#include "codegen/rows.h"
#include "codegen/scan.h"

namespace weft::codegen {
namespace {

using planning::Lowering;

/// The addresses at which a value of the block is stored.
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

/// Hands out modules for stages, a new one whenever the last holds enough instructions: an eighth of all before it, so
/// that a large program has few modules. Each module costs as much to compile as some 20 instructions.
class Modules {
 public:
  explicit Modules(bool together) : together_(together) {}

  llvm::Module& next() {
    if (all_.empty() || (!together_ && instructions_in_last() >= std::max(kLeast, before_ / 8))) {
      before_ += instructions_in_last();
      auto context = std::make_unique<llvm::LLVMContext>();
      auto module = std::make_unique<llvm::Module>("weft", *context);
      set_vector_isa(*module, vector_isa_of(runtime::active_isa()));
      all_.push_back({std::move(context), std::move(module)});
    }
    return *all_.back().module;
  }
  std::vector<StageModule> take() { return std::move(all_); }

 private:
  static constexpr uint64_t kLeast = 100;  // instructions

  uint64_t instructions_in_last() const { return all_.empty() ? 0 : all_.back().module->getInstructionCount(); }

  bool together_;
  uint64_t before_ = 0;  // instructions of the modules before the last
  std::vector<StageModule> all_;
};

void generate_stages(planning::Schedule& schedule, Modules& modules, const planning::BlockSchedule& block,
                     const std::vector<runtime::StagePlan>& plans) {
  for (size_t i = 0; i < block.stages.size(); ++i) {
    const planning::Stage& stage = block.stages[i];
    if (plans[i].kind == Kind::kCall) continue;
    if (auto control = schedule.controls.find(stage.ops[0]); control != schedule.controls.end()) {
      for (size_t k = 0; k < plans[i].control.regions.size(); ++k)
        generate_stages(schedule, modules, control->second.blocks[k], plans[i].control.regions[k]);
      continue;
    }
    llvm::Module& module = modules.next();
    Frame frame(schedule, module, plans[i].symbol);
    if (plans[i].kind == Kind::kScan)
      emit_scan(frame, *stage.ops[0]);
    else
      generate_rows(frame, block, stage);
    frame.finish();
  }
}

}  // namespace

std::vector<StageModule> generate(planning::Schedule& schedule, bool together) {
  Modules modules(together);
  generate_stages(schedule, modules, schedule.body, schedule.plan.stages);
  return modules.take();
}

}  // namespace weft::codegen
