// The bounds of one loop nest and of one function of machine code: programs beyond them are right, and in parts.
#include "planning/fusion/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "lowered.h"
#include "native_run.h"
#include "random_program.h"

namespace weft::fuse_test {
namespace {

using testing::Lowered;
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

/// The number of stages. Each must read only results of the same stage or an earlier one.
int64_t stages_of(const planning::BlockSchedule& block) {
  std::map<ir::ValueId, size_t> made;
  for (size_t stage = 0; stage < block.stages.size(); ++stage)
    for (const ir::Op* op : block.stages[stage].ops)
      for (ir::ValueId result : op->results) made[result] = stage;
  for (size_t stage = 0; stage < block.stages.size(); ++stage)
    for (const ir::Op* op : block.stages[stage].ops)
      for (ir::ValueId operand : op->operands)
        if (auto found = made.find(operand); found != made.end()) {
          EXPECT_LE(found->second, stage);
        }
  return std::ssize(block.stages);
}

int64_t stages_of_body(const std::string& text) { return stages_of(Lowered(text).schedule.body); }

/// The number of stages in the program's only scan. The scan is one function.
int64_t stages_of_scan(const std::string& text) {
  const Lowered lowered(text);
  EXPECT_EQ(lowered.schedule.scans.size(), 1u);
  return stages_of(lowered.schedule.scans.begin()->second.block);
}

/// Why the one scan is not one function.
std::string reason_of_loop(const std::string& text) {
  const Lowered lowered(text);
  EXPECT_EQ(lowered.schedule.controls.size(), 1u);
  return lowered.schedule.rules.decision(*lowered.schedule.controls.begin()->first).reason;
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
  EXPECT_EQ(stages_of_body(in_body(100)), 1);
  EXPECT_EQ(stages_of_scan(in_scan(100)), 1);
}

TEST(Results, ThatReshapeAreStoredByTheirOwnStage) {
  auto returning = [](const std::string& results) {
    return "program @p(%x: f32[B,3]) { %a = neg %x : f32[B,3] %b = reshape %a : f32[1,B,3] %c = reshape %b : f32[3*B] "
           "%d = exp %a : f32[B,3] %e = slice %d {dim = 1, limit = 2, start = 1} : f32[B,1] "
           "%f = reshape %x : f32[3*B] return " +
           results + " }";
  };
  EXPECT_EQ(stages_of_body(returning("%b, %d")), 1);
  EXPECT_EQ(stages_of_body(returning("%c, %d")), 1);
  for (const char* results : {"%b", "%c, %d", "%c, %b, %d", "%b, %b", "%a, %c, %c", "%e, %b", "%f, %c", "%x, %f"})
    for (int64_t rows : {0, 1, 5}) compare(returning(results), {{"B", rows}});
}

TEST(Results, ThatReshapeAStateOfALoop) {
  const std::string text =
      "program @p(%h: f32[B,3], %x: f32[T,B,3]) { %r, %y = scan length T carry(%c = %h) xs(%s = %x) {"
      " %n = add %c, %s : f32[B,3] yield carry(%n) ys(%n) } : f32[B,3], f32[T,B,3]"
      " %last = reshape %r : f32[1,B,3] %flat = reshape %y : f32[3*B*T] return %last, %flat, %last }";
  for (int64_t steps : {0, 1, 4}) compare(text, {{"B", 2}, {"T", steps}});
}

TEST(FuseBound, ALongBodyIsSeveralStages) {
  const int64_t stages = stages_of_body(in_body(1500));
  EXPECT_GE(stages, 8);
  EXPECT_LE(stages, 30);
  compare(in_body(1500), {{"B", 5}});
}

TEST(FuseBound, ALongStepIsSeveralStagesOfOneFunction) {
  const int64_t stages = stages_of_scan(in_scan(1000));
  EXPECT_GE(stages, 5);
  EXPECT_LE(stages, 20);
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
  EXPECT_GE(stages_of_body(text), 5);
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
  EXPECT_EQ(reason_of_loop(text), "more than 128 stages in a scan");
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
  EXPECT_EQ(reason_of_loop(text), "more than 256 carries, xs and ys in a scan");
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
    const Lowered lowered(text);
    EXPECT_EQ(lowered.schedule.rules.of(lowered.program.body.ops.back()), planning::Lowering::kCall);
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
  EXPECT_EQ(stages_of_body("program @p(" + args + ") {\n" + ops + "return " + results + " }"), 20000);
}

}  // namespace
}  // namespace weft::fuse_test
