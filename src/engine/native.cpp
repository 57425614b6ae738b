#include "engine/native.h"

#include <algorithm>
#include <functional>

#include "base/settings.h"
#include "engine/callbacks.h"
#include "engine/program_cache.h"
#include "ir/text/printer.h"
#include "jit/jit.h"
#include "passes/pass_runner.h"
#include "planning/cpu/cpu_target.h"
#include "planning/schedule_text.h"
#include "runtime/plan/executable.h"
#include "runtime/plan/plan_text.h"

namespace weft::engine {
namespace {

/// A program lowered in this process. It lives as long as its callbacks, which read it.
struct Lowered {
  explicit Lowered(ir::Program source) : fused(std::move(source)) {
    passes::PassRunner runner(fused);
    runner.run(passes::compile_pipeline());
    runner.run(target.layout_passes());
    runner.run_step(
        "lower", [&] { schedule = planning::lower(fused, target); }, [&] { return write_lowered(schedule); });
  }
  Lowered(const Lowered&) = delete;
  Lowered& operator=(const Lowered&) = delete;

  ir::Program fused;  ///< after the passes, with the copies that lowering inserts
  planning::CpuTarget target;
  planning::Schedule schedule;  ///< points into `fused` and `target`
};

class Native : public Executable {
 public:
  explicit Native(ir::Program program) : program_(std::move(program)), binder_(program_) {
    const std::string key = program_key(program_, planning::CpuTarget());
    auto stored = settings().verify ? std::nullopt : load_program(key);
    runtime::Plan plan = stored ? std::move(stored->plan) : compile(key);
    if (stored) {
      from_cache_ = true;
      code_ = jit::link(stored->objects);
    }
    const auto count = static_cast<size_t>(plan.stage_count);
    runtime::StageCode code{std::vector<runtime::StageFunction>(count), std::vector<runtime::CallFunction>(count)};
    link(plan.stages, code);
    if (lowered_) link_callbacks(plan.stages, lowered_->schedule.body, code);
    native_ = std::make_unique<runtime::NativeProgram>(std::move(plan), std::move(code));
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
  /// Lowers the program and generates its code, which are kept on disk under the key.
  runtime::Plan compile(const std::string& key) {
    auto lowered = std::make_unique<Lowered>(program_);
    jit::Compiled compiled = jit::compile(lowered->schedule, dump_path());
    from_cache_ = compiled.from_cache;
    instructions_ = compiled.instructions;
    code_ = std::move(compiled.code);
    runtime::Plan plan = plan_to_run(lowered->schedule.plan);
    if (has_callbacks(plan.stages)) {
      lowered_ = std::move(lowered);
      return plan;
    }
    if (settings().verify) check_stored(key, plan);
    store_program(key, plan, compiled.objects);
    return plan;
  }

  /// The plan. Where passes are verified, the plan is read back from its text, which shows that the text is complete.
  runtime::Plan plan_to_run(const runtime::Plan& made) const {
    if (!settings().verify) return made;
    runtime::Plan plan = runtime::read_plan(runtime::write_plan(made));
    internal_check(plan == made, "the plan of @{} is another one when it is read again", program_.name);
    return plan;
  }

  static bool is_callback(const runtime::StagePlan& stage) {
    return stage.kind == runtime::StagePlan::Kind::kCall && std::holds_alternative<runtime::CallbackCall>(stage.call);
  }

  static bool has_callbacks(const std::vector<runtime::StagePlan>& stages) {
    return std::ranges::any_of(stages, [](const runtime::StagePlan& stage) {
      return is_callback(stage) || std::ranges::any_of(stage.control.regions, has_callbacks);
    });
  }

  /// Finds the functions that the stages run, nested stages included.
  void link(const std::vector<runtime::StagePlan>& stages, runtime::StageCode& code) const {
    for (const runtime::StagePlan& stage : stages) {
      if (stage.kind != runtime::StagePlan::Kind::kCall && stage.control.regions.empty())
        code.functions[static_cast<size_t>(stage.index)] = code_->function(stage.symbol);
      for (const auto& region : stage.control.regions) link(region, code);
    }
  }

  /// Makes the callbacks of a block's stages, nested stages included.
  void link_callbacks(const std::vector<runtime::StagePlan>& stages, const planning::BlockSchedule& block,
                      runtime::StageCode& code) const {
    for (size_t i = 0; i < stages.size(); ++i) {
      const runtime::StagePlan& stage = stages[i];
      const ir::Op& op = *block.stages[i].ops[0];
      if (is_callback(stage)) code.callbacks[static_cast<size_t>(stage.index)] = make_callback(lowered_->schedule, op);
      for (size_t k = 0; k < stage.control.regions.size(); ++k)
        link_callbacks(stage.control.regions[k], lowered_->schedule.controls.at(&op).blocks[k], code);
    }
  }

  std::string dump_path() const {
    if (settings().dump.empty()) return "";
    return fmt::format("{}/{}-{:016x}", settings().dump, program_.name,
                       std::hash<std::string>{}(ir::print(program_, true)));
  }

  ir::Program program_;
  ir::Binder binder_;
  std::unique_ptr<const Lowered> lowered_;  ///< null if nothing calls back
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
