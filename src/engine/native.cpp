#include "engine/native.h"

#include <algorithm>
#include <functional>

#include "base/settings.h"
#include "engine/calls.h"
#include "engine/inputs.h"
#include "ir/printer.h"
#include "jit/jit.h"
#include "passes/layout/fuse.h"
#include "passes/pass_runner.h"
#include "runtime/executable.h"

namespace weft::engine {
namespace {

class Native : public Executable {
 public:
  explicit Native(ir::Program program) : program_(std::move(program)), fused_(program_) {
    passes::drop_annotations(fused_.body);  // the text may be a dump of fuse, whose stages are assigned anew
    passes::run_passes(fused_, passes::compile_pipeline());
    calls_out_ = calls_out(fused_.body);
    schedule_ = codegen::schedule(fused_, jit::tile_rows());
    jit::Compiled compiled = jit::compile(schedule_, dump_path());
    from_cache_ = compiled.from_cache;
    instructions_ = compiled.instructions;
    code_ = std::move(compiled.code);
    runtime::Plan plan = schedule_.plan;
    link(plan.stages, schedule_.body);
    native_ = std::make_unique<runtime::NativeProgram>(std::move(plan));
    checker_ = std::make_unique<InputChecker>(program_, native_->plan().symbols);
  }

  bool from_cache() const { return from_cache_; }
  int64_t instructions() const { return instructions_; }
  const ir::Program& program() const override { return program_; }

  void run(std::span<const runtime::TensorRef> inputs, std::span<const runtime::TensorRef> outputs,
           runtime::Team& team) const override {
    std::vector<int64_t> symbols = checker_->values(inputs);
    internal_check(outputs.size() == program_.body.results.size(), "@{} has {} outputs, got memory for {}",
                   program_.name, program_.body.results.size(), outputs.size());
    std::vector<const void*> from;
    std::vector<void*> to;
    for (const runtime::TensorRef& input : inputs) from.push_back(input.data);
    for (const runtime::TensorRef& output : outputs) to.push_back(output.data);
    runtime::SerialTeam alone;
    native_->run(from, to, symbols, calls_out_ ? alone : team);
  }

  std::string plan(const ir::Bindings& bindings) const override {
    std::vector<int64_t> values;
    for (const std::string& symbol : native_->plan().symbols)
      values.push_back(evaluate(ir::Dim::symbol(symbol), bindings));
    return runtime::describe(native_->plan(), values);
  }

 private:
  static bool calls_out(const ir::Block& block) {
    return std::ranges::any_of(block.ops, [](const ir::Op& op) {
      return op.code == ir::OpCode::kExtern || std::ranges::any_of(op.regions, calls_out);
    });
  }

  /// Sets the functions of a block's stages and of those within them.
  void link(std::vector<runtime::StagePlan>& stages, const codegen::BlockSchedule& block) {
    for (size_t i = 0; i < stages.size(); ++i) {
      const ir::Op& op = *block.stages[i].ops[0];
      if (stages[i].kind == runtime::StagePlan::Kind::kCall)
        stages[i].call = make_call(schedule_, op);
      else if (stages[i].control.regions.empty())
        stages[i].function = code_->function(stages[i].symbol);
      for (size_t k = 0; k < stages[i].control.regions.size(); ++k)
        link(stages[i].control.regions[k], schedule_.controls.at(&op).blocks[k]);
    }
  }

  std::string dump_path() const {
    if (settings().dump.empty()) return "";
    return fmt::format("{}/{}-{:016x}", settings().dump, program_.name,
                       std::hash<std::string>{}(ir::print(program_, true)));
  }

  ir::Program program_;
  ir::Program fused_;
  bool calls_out_ = false;      ///< runs on one thread, so that PyTorch's operators may use the team themselves
  codegen::Schedule schedule_;  // points into fused_
  std::unique_ptr<jit::Code> code_;
  bool from_cache_ = false;
  int64_t instructions_ = 0;
  std::unique_ptr<runtime::NativeProgram> native_;
  std::unique_ptr<InputChecker> checker_;
};

}  // namespace

NativeResult native(ir::Program program) {
  auto executable = std::make_shared<const Native>(std::move(program));
  NativeResult result{nullptr, executable->from_cache(), executable->instructions()};
  result.executable = std::move(executable);
  return result;
}

}  // namespace weft::engine
