// The bounds of what is one loop nest and one function of machine code: programs beyond them are right, and in parts.
#include "passes/layout/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/parser.h"
#include "native_run.h"
#include "passes/pass_runner.h"
#include "random_program.h"

namespace weft {
namespace {

using testing::run_native;

/// `count` lines of ops, alternately neg and tanh, from %v0 to %v<count>.
std::string alternating(int count) {
  std::string ops;
  for (int i = 0; i < count; ++i)
    ops += fmt::format("%v{} = {} %v{} : f32[B,3]\n", i + 1, i % 2 == 0 ? "neg" : "tanh", i);
  return ops;
}

std::string in_body(int count) {
  return "program @p(%v0: f32[B,3]) {\n" + alternating(count) + fmt::format("return %v{} }}", count);
}

std::string in_scan(int count, const std::string& reads = "f32[T,B,3]") {
  return fmt::format(
      "program @p(%h: f32[B,3], %x: {0}) {{ %r, %y = scan length T carry(%c = %h) xs(%s = %x) {{\n"
      "%v0 = add %c, %s : f32[B,3]\n{1} yield carry(%v{2}) ys(%v{2}) }} : f32[B,3], f32[T,B,3] return %r, %y }}",
      reads, alternating(count), count);
}

/// The program as the pass fuse leaves it.
ir::Program fused(const std::string& text) {
  ir::Program program = ir::parse(text);
  passes::run_passes(program, passes::compile_pipeline());
  return program;
}

/// The number of stages. That they read what the same or an earlier one has made is expected.
int64_t stages_of(const ir::Block& block) {
  std::map<ir::ValueId, int64_t> made;
  int64_t count = 0;
  for (const ir::Op& op : block.ops) {
    if (!op.has("stage")) continue;
    auto stage = op.attr<int64_t>("stage");
    for (ir::ValueId operand : op.operands)
      if (auto found = made.find(operand); found != made.end()) {
        EXPECT_LE(found->second, stage);
      }
    for (ir::ValueId result : op.results) made[result] = stage;
    count = std::max(count, stage + 1);
  }
  return count;
}

const ir::Op& scan_of(const ir::Program& program) {
  return *std::ranges::find(program.body.ops, ir::OpCode::kScan, &ir::Op::code);
}

/// Machine code against the interpreter, on one thread and on two.
void compare(const std::string& text, const ir::Bindings& bindings) {
  ir::Program program = ir::parse(text);
  auto inputs = testing::random_inputs(program, bindings, 3);
  auto want = interpreter::evaluate(program, inputs);
  runtime::SerialTeam serial;
  for (runtime::Team* team : {static_cast<runtime::Team*>(&serial), &runtime::own_team(2)})
    EXPECT_LE(testing::difference(run_native(text, inputs, bindings, *team), want), 1e-5);
}

TEST(FuseBound, SmallProgramsAreOneStage) {
  EXPECT_EQ(stages_of(fused(in_body(100)).body), 1);
  EXPECT_EQ(stages_of(scan_of(fused(in_scan(100))).regions[0]), 1);
}

TEST(FuseBound, ALongBodyIsSeveralStages) {
  const int64_t stages = stages_of(fused(in_body(1500)).body);
  EXPECT_GE(stages, 8);
  EXPECT_LE(stages, 30);
  compare(in_body(1500), {{"B", 5}});
}

TEST(FuseBound, ALongStepIsSeveralStagesOfOneFunction) {
  ir::Program program = fused(in_scan(1000));
  const ir::Op& scan = scan_of(program);
  EXPECT_FALSE(scan.has("loop"));
  EXPECT_GE(stages_of(scan.regions[0]), 5);
  EXPECT_LE(stages_of(scan.regions[0]), 20);
  compare(in_scan(1000), {{"B", 5}, {"T", 4}});
  compare(in_scan(1000), {{"B", 1}, {"T", 0}});
}

TEST(FuseBound, WhatReachesMemoryCountsMore) {
  std::string args, ops, results;
  for (int i = 0; i < 1000; ++i) {
    args += fmt::format("{}%x{}: f32[B,3]", i ? ", " : "", i);
    ops += fmt::format("%v{0} = neg %x{0} : f32[B,3]\n", i);
    results += fmt::format("{}%v{}", i ? ", " : "", i);
  }
  const std::string text = "program @p(" + args + ") {\n" + ops + "return " + results + " }";
  EXPECT_GE(stages_of(fused(text).body), 5);
  compare(text, {{"B", 3}});
}

TEST(FuseBound, AScanOfHundredsOfStagesRunsStepByStep) {
  std::string ops = "%v0 = copy %c : f32[B,3]\n";
  for (int i = 0; i < 150; ++i)
    ops += fmt::format(
        "%r{0} = reduce_max %v{0} {{dims = [1]}} : f32[B]\n%b{0} = broadcast %r{0} {{dims = [0]}} : f32[B,3]\n"
        "%d{0} = sub %v{0}, %b{0} : f32[B,3]\n%v{1} = tanh %d{0} : f32[B,3]\n",
        i, i + 1);
  const std::string text = "program @p(%h: f32[B,3]) { %r = scan length 3 carry(%c = %h) xs() {\n" + ops +
                           "%n = add %v150, %h : f32[B,3] yield carry(%n) ys() } : f32[B,3] return %r }";
  ir::Program program = fused(text);
  EXPECT_EQ(scan_of(program).attr<std::string>("loop"), "more than 128 stages in a scan");
  compare(text, {{"B", 5}});
}

TEST(FuseBound, AScanOfHundredsOfCarriesRunsStepByStep) {
  std::string args, carries, ops, results, types;
  for (int i = 0; i < 300; ++i) {
    const char* comma = i ? ", " : "";
    args += fmt::format("{}%x{}: f32[B,3]", comma, i);
    carries += fmt::format("{0}%c{1} = %x{1}", comma, i);
    ops += fmt::format("%v{} = add %c{}, %c{} : f32[B,3]\n", i, i, (i + 1) % 300);
    results += fmt::format("{}%v{}", comma, i);
    types += fmt::format("{}f32[B,3]", comma);
  }
  std::string names = results;
  std::ranges::replace(names, 'v', 'r');
  const std::string text = "program @p(" + args + ") { " + names + " = scan length 3 carry(" + carries + ") xs() {\n" +
                           ops + "yield carry(" + results + ") ys() } : " + types + " return " + names + " }";
  ir::Program program = fused(text);
  EXPECT_EQ(scan_of(program).attr<std::string>("loop"), "more than 256 carries, xs and ys in a scan");
  compare(text, {{"B", 5}});
}

TEST(FuseBound, AConcatenationOfHundredsOfPartsIsTheRuntimes) {
  for (const char* width : {"2", "1"}) {  // parts alike, and one that is not
    std::string args, parts;
    for (int i = 0; i < 200; ++i) {
      args += fmt::format("{}%x{}: f32[B,{}]", i ? ", " : "", i, i == 7 ? width : "2");
      parts += fmt::format("{}%x{}", i ? ", " : "", i);
    }
    const std::string text = fmt::format("program @p({}) {{ %y = concat {} {{dim = 1}} : f32[B,{}] return %y }}", args,
                                         parts, 398 + std::stoi(width));
    const ir::Program program = fused(text);
    EXPECT_EQ(passes::lowering_of(program, program.body.ops.back()), passes::Lowering::kCall);
    compare(text, {{"B", 3}});
  }
}

/// Thousands of domains: each op looks only at the stages of its own.
TEST(FuseBound, ThousandsOfDomains) {
  std::string args, ops, results;
  for (int i = 1; i <= 20000; ++i) {
    args += fmt::format("{}%x{}: f32[B,{}]", i > 1 ? ", " : "", i, i);
    ops += fmt::format("%v{0} = neg %x{0} : f32[B,{0}]\n", i);
    results += fmt::format("{}%v{}", i > 1 ? ", " : "", i);
  }
  EXPECT_EQ(stages_of(fused("program @p(" + args + ") {\n" + ops + "return " + results + " }").body), 20000);
}

}  // namespace
}  // namespace weft
