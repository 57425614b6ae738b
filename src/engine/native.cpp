#include "engine/native.h"

#include <algorithm>
#include <functional>

#include "base/settings.h"
#include "engine/callbacks.h"
#include "ir/printer.h"
#include "jit/jit.h"
#include "passes/pass_runner.h"
#include "planning/cpu/cpu_target.h"
#include "planning/schedule_text.h"
#include "runtime/executable.h"
#include "runtime/plan_text.h"

namespace weft::engine {
namespace {

class Native : public Executable {
 public:
  explicit Native(ir::Program program) : program_(std::move(program)), binder_(program_), fused_(program_) {
    passes::PassRunner runner(fused_);
    runner.run(passes::compile_pipeline());
    runner.run(target_.layout_passes());
    runner.run_step(
        "lower", [&] { schedule_ = planning::lower(fused_, target_); }, [&] { return write_lowered(schedule_); });
    jit::Compiled compiled = jit::compile(schedule_, dump_path());
    from_cache_ = compiled.from_cache;
    instructions_ = compiled.instructions;
    code_ = std::move(compiled.code);
    const auto count = static_cast<size_t>(schedule_.plan.stage_count);
    runtime::StageCode code{std::vector<runtime::StageFunction>(count), std::vector<runtime::CallFunction>(count)};
    link(schedule_.plan.stages, schedule_.body, code);
    native_ = std::make_unique<runtime::NativeProgram>(plan_to_run(), std::move(code));
    internal_check(native_->plan().symbols == binder_.symbols(), "@{} has other symbols in its plan", program_.name);
  }

  bool from_cache() const { return from_cache_; }
  int64_t instructions() const { return instructions_; }
  const ir::Program& program() const override { return program_; }

  const ir::Binder& binder() const override { return binder_; }
  using Executable::run;

  void run(const std::vector<int64_t>& symbols, std::span<const runtime::TensorRef> inputs,
           std::span<const runtime::TensorRef> outputs, runtime::Team& team) const override {
    internal_check(outputs.size() == program_.body.results.size(), "@{} has {} outputs, got memory for {}",
                   program_.name, program_.body.results.size(), outputs.size());
    for (const ir::Donation& donation : program_.donations)
      internal_check(outputs[donation.result].data == inputs[donation.input].data,
                     "@{}: result {} should lie in the memory of input {}", program_.name, donation.result,
                     donation.input);
    native_->run(inputs, outputs, symbols, team);
  }

  std::string plan(const ir::Bindings& bindings) const override {
    std::vector<int64_t> values;
    for (const std::string& symbol : native_->plan().symbols)
      values.push_back(evaluate(ir::Dim::symbol(symbol), bindings));
    return runtime::describe(native_->plan(), values);
  }

  std::string plan_text() const override { return runtime::write_plan(native_->plan()); }

 private:
  /// The plan. Where passes are verified, it is printed and parsed, which shows that the text of a plan is complete.
  runtime::Plan plan_to_run() const {
    if (!settings().verify) return schedule_.plan;
    runtime::Plan plan = runtime::read_plan(runtime::write_plan(schedule_.plan));
    internal_check(plan == schedule_.plan, "the plan of @{} is another one when it is read again", program_.name);
    return plan;
  }

  /// Finds the functions and callbacks that the stages of a block run, nested stages included.
  void link(const std::vector<runtime::StagePlan>& stages, const planning::BlockSchedule& block,
            runtime::StageCode& code) const {
    for (size_t i = 0; i < stages.size(); ++i) {
      const runtime::StagePlan& stage = stages[i];
      const ir::Op& op = *block.stages[i].ops[0];
      const auto index = static_cast<size_t>(stage.index);
      if (stage.kind == runtime::StagePlan::Kind::kCall) {
        if (std::holds_alternative<runtime::CallbackCall>(stage.call))
          code.callbacks[index] = make_callback(schedule_, op);
      } else if (stage.control.regions.empty()) {
        code.functions[index] = code_->function(stage.symbol);
      }
      for (size_t k = 0; k < stage.control.regions.size(); ++k)
        link(stage.control.regions[k], schedule_.controls.at(&op).blocks[k], code);
    }
  }

  std::string dump_path() const {
    if (settings().dump.empty()) return "";
    return fmt::format("{}/{}-{:016x}", settings().dump, program_.name,
                       std::hash<std::string>{}(ir::print(program_, true)));
  }

  ir::Program program_;
  ir::Binder binder_;
  ir::Program fused_;  ///< after the passes, with the copies that lowering inserts
  planning::CpuTarget target_;
  planning::Schedule schedule_;  // points into fused_ and target_
  std::unique_ptr<jit::Code> code_;
  bool from_cache_ = false;
  int64_t instructions_ = 0;
  std::unique_ptr<runtime::NativeProgram> native_;
};

}  // namespace

NativeResult native(ir::Program program) {
  auto executable = std::make_shared<const Native>(std::move(program));
  NativeResult result{nullptr, executable->from_cache(), executable->instructions()};
  result.executable = std::move(executable);
  return result;
}

}  // namespace weft::engine
