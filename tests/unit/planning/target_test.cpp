// A target is only its interface: fusion and the planner know nothing else of the machine. A second target, which has
// other vectors, no packed products and no kernels, counts the calls that it gets.

#include "planning/target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/printer.h"
#include "lowered.h"
#include "programs.h"
#include "random_program.h"

namespace weft::planning::target_test {
namespace {

using ir::Op;
using ir::OpCode;

class CountingTarget : public Target {
 public:
  std::string description() const override { return "counting"; }
  std::span<const passes::Pass> layout_passes() const override { return {}; }
  bool computes(DType dtype) const override { return dtype == DType::kF32; }
  int64_t lanes(DType) const override { return 3; }
  int64_t row_block(int64_t vectors, int64_t) const override { return vectors + 1; }
  std::optional<ProductTile> tile(const ir::Program&, const Op&) const override { return {}; }
  int64_t code_size(const ir::Program&, const Op&) const override { return 1; }
  const Limits& limits() const override { return limits_; }
  OperandViews views(const ir::Program&, const Op&) const override { return OperandViews::kNone; }
  runtime::KernelCall kernel(Schedule&, const Op& op) const override {
    ++calls[op.code];
    return runtime::CallbackCall{};
  }

  mutable std::map<OpCode, int64_t> calls;

 private:
  Limits limits_ = {
      .stage_size = 4, .access_size = 0, .stages_a_function = 6, .stacks_a_function = 5, .parts = 2, .tiny_domain = 0};
};

/// The number of stages of each kind, and the ops in stages, over all blocks.
struct Counts {
  int64_t functions = 0, loops = 0, fused = 0, calls = 0;
  std::multiset<const Op*> ops;

  explicit Counts(const Schedule& schedule) {
    add(schedule.body);
    for (const auto& [op, scan] : schedule.scans) add(scan.block);
    for (const auto& [op, control] : schedule.controls)
      for (const BlockSchedule& block : control.blocks) add(block);
  }

 private:
  void add(const BlockSchedule& block) {
    for (const Stage& stage : block.stages) {
      ops.insert(stage.ops.begin(), stage.ops.end());
      functions += stage.lowering == Lowering::kScan;
      loops += stage.lowering == Lowering::kLoop;
      fused += stage.lowering == Lowering::kFused;
      calls += stage.lowering == Lowering::kCall;
    }
  }
};

/// Each op of the block, and of regions that have stages, is in one stage or needs no code.
void expect_in_one_stage(const Schedule& schedule, const ir::Block& block, const Counts& counts) {
  for (const Op& op : block.ops) {
    const Lowering lowering = schedule.rules.of(op);
    const bool has_code = lowering != Lowering::kView && lowering != Lowering::kAlias;
    EXPECT_EQ(counts.ops.count(&op), has_code ? 1u : 0u) << ir::info(op.code).name;
    if (lowering == Lowering::kCall) continue;
    for (const ir::Block& region : op.regions) expect_in_one_stage(schedule, region, counts);
  }
}

void expect_within_limits(const Schedule& schedule, const Limits& limits) {
  auto check = [&](const BlockSchedule& block) {
    for (const Stage& stage : block.stages)
      if (stage.lowering == Lowering::kFused) {
        EXPECT_LE(std::ssize(stage.ops), limits.stage_size);
        EXPECT_EQ(stage.lanes, 3);
        EXPECT_EQ(stage.row_block, 1);
        EXPECT_EQ(stage.unroll, 0);
      }
  };
  check(schedule.body);
  for (const auto& [op, scan] : schedule.scans) {
    check(scan.block);
    if (!op->has("rows")) {
      EXPECT_LE(std::ssize(scan.block.stages), 2 * limits.stages_a_function);  // copies are inserted afterwards
    }
  }
}

TEST(TargetTest, ASecondTargetGetsWhatItsInterfaceSays) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    testing::RandomOptions options;
    options.ragged = seed % 4 == 1;
    options.row_wise = seed % 8 == 1;
    const ir::Program source = testing::random_program(seed, options);
    SCOPED_TRACE(ir::print(source));
    const CountingTarget target;
    const testing::Lowered lowered(source, target);
    const Counts counts(lowered.schedule);
    expect_in_one_stage(lowered.schedule, lowered.program.body, counts);
    expect_within_limits(lowered.schedule, target.limits());
    int64_t calls = 0;
    for (const auto& [code, count] : target.calls) calls += count;
    EXPECT_EQ(calls, counts.calls);
    EXPECT_FALSE(target.calls.contains(OpCode::kPack));
    EXPECT_FALSE(target.calls.contains(OpCode::kMatmulPacked));
  }
}

/// Lowering changes a program by copies only: it computes what it did before.
TEST(TargetTest, LoweringKeepsWhatAProgramComputes) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    ir::Program source = testing::random_program(seed, {});
    const ir::Bindings bindings{{"T", 3}, {"B", 2}};
    const testing::Arrays inputs = testing::random_inputs(source, bindings, seed);
    const testing::Arrays want = interpreter::evaluate(source, inputs);
    const CountingTarget target;
    const testing::Lowered lowered(source, target);
    EXPECT_LE(testing::difference(interpreter::evaluate(lowered.program, inputs), want), 1e-4) << ir::print(source);
  }
}

/// The same program for two targets: the layout is the CPU's, and so are its stages' tiles.
TEST(TargetTest, LayoutsBelongToTheirTarget) {
  const std::string text = testing::program_text("gru");
  const testing::Lowered cpu(text);
  const CountingTarget target;
  const testing::Lowered counted(ir::parse(text), target);
  auto has_panels = [](const ir::Program& program) {
    return ir::print(program).find("matmul_packed") != std::string::npos;
  };
  EXPECT_TRUE(has_panels(cpu.program));
  EXPECT_FALSE(has_panels(counted.program));
  EXPECT_EQ(Counts(cpu.schedule).functions, 1);
  EXPECT_EQ(Counts(cpu.schedule).loops, 0);
  // A product is a call for this target, so its loop is no function.
  EXPECT_EQ(Counts(counted.schedule).functions, 0);
  EXPECT_EQ(Counts(counted.schedule).loops, 1);
  EXPECT_EQ(target.calls.at(OpCode::kMatmul), 2);  // the projection of all inputs, and the step's
  // The work of the program is the same: packing doesn't count.
  EXPECT_TRUE(counted.schedule.plan.work == cpu.schedule.plan.work);
}

}  // namespace
}  // namespace weft::planning::target_test
