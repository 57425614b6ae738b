// Plans as text: everything comes back, and text that is no plan is refused with its line.

#include "runtime/plan/plan_text.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "programs.h"

namespace weft::runtime::plan_text_test {
namespace {

StagePlan call_of(KernelCall call) {
  StagePlan stage;
  stage.kind = StagePlan::Kind::kCall;
  stage.symbol = "a \"quoted\\\" name";
  stage.call = std::move(call);
  return stage;
}

/// A plan with a stage of each kind and each kernel.
Plan everything() {
  const DimExpr rows{3, {0, 1}};
  const std::vector<MatrixPlace> places{{1, rows, 16, 8, 32}, {2, rows, 4, 0, 4}};
  Plan plan;
  plan.symbols = {"B", "T"};
  plan.dims = {rows, {7, {}}};
  plan.work = {rows};
  plan.stage_count = 19;
  plan.buffers.resize(3);
  plan.buffers[0] = {"%x", Storage::kInput, 1, -1, 8, rows, 1, 0, 0, 0};
  plan.buffers[1] = {"%y", Storage::kOutput, 0, 1, 4, {}, 2, 2, 3, 9};
  plan.buffers[2].storage = Storage::kStep;
  StagePlan scan;
  scan.kind = StagePlan::Kind::kScan;
  scan.step = {{rows}, {rows, rows}, {}, 4096, 33, 2, 2, {rows}};
  scan.carry_copies = {{1, 2}, {3, 4}};
  scan.side_by_side = {{1, 3}, {0, 2}, {}, {{1, 0}}};
  scan.splits_rows = false;
  scan.batch_sizes = 4;
  StagePlan loop;
  loop.kind = StagePlan::Kind::kLoop;
  loop.control.slices = {{5, 6}};
  loop.control.carries = {{1, 2, 3, 4, 5}, {2, 3, 4, 5, 6, true}};
  loop.control.reverse = true;
  loop.control.regions = {{scan, call_of(CallbackCall{})}, {}};
  StagePlan choice;
  choice.kind = StagePlan::Kind::kCond;
  choice.outside = true;
  choice.control.predicate = 3;
  choice.control.regions = {{loop}, {scan}};
  plan.stages = {
      StagePlan{},
      choice,
      call_of(PackCall{DType::kBF16, 1, 2, 3, 4, 5, 6, 7, 8, 9, true, true, true, {DimExpr{3, {1}}}, {}}),
      call_of(OuterCall{DType::kF64, places, {places[1]}, 9}),
      call_of(ColumnSumCall{DType::kF32, places, 9}),
      call_of(ProductCall{DType::kF32, 1, 2, 3, rows, rows, rows, rows, true, true}),
      call_of(FoldCall{DType::kI32, false, 1, 2, {{rows, true}, {rows, false}}}),
      call_of(IotaCall{DType::kI64, 1, rows, rows, rows}),
      call_of(SizeCall{DType::kI32, 1, rows}),
      call_of(DivideCall{DType::kI32, true, 1, 2, 3, rows}),
      call_of(CopyCall{2, 7, {{1, rows, rows, {{rows, rows, rows, true}}}, {}}}),
      call_of(PadCall{8, 1, 2, rows, rows, rows, rows}),
      call_of(GatherCall{8, 1, 2, {3, rows, false}, rows, rows}),
      call_of(ScatterCall{8, 1, 2, 3, {4, rows, true}, rows, rows}),
      call_of(ScatterAddCall{DType::kF64, 1, 2, {3, rows, true}, rows, rows}),
      call_of(DynamicSliceCall{{2, 1, rows, rows}, {1, rows}, {2, rows}, 3}),
      call_of(DynamicUpdateCall{{8, 1, rows, rows}, {1, rows}, {2, rows}, 3, 4}),
  };
  return plan;
}

TEST(PlanText, EverythingComesBack) {
  const Plan plan = everything();
  const std::string text = write_plan(plan);
  const Plan again = read_plan(text);
  EXPECT_EQ(again, plan) << text;
  EXPECT_EQ(write_plan(again), text);
}

TEST(PlanText, OneChangeIsADifference) {
  const Plan plan = everything();
  Plan other = plan;
  std::get<CopyCall>(other.stages[10].call).parts[0].dims[0].reversed = false;
  EXPECT_NE(other, plan);
  EXPECT_NE(write_plan(other), write_plan(plan));
  other = plan;
  other.stages[1].control.regions[0][0].control.carries[0].work = 6;
  EXPECT_NE(other, plan);
}

TEST(PlanText, APlanOfAProgramIsReadable) {
  const auto executable = engine::compile(
      "program @p(%x: f32[B,3], %i: i64[N]) {\n"
      "  %y = tanh %x : f32[B,3]\n"
      "  %g = gather %y, %i : f32[N,3]\n"
      "  return %g\n"
      "}");
  EXPECT_EQ(executable->plan_text(),
            "symbols [\"B\", \"N\"]\n"
            "dims []\n"
            "stage_count 2\n"
            "work [12*s0, 12*s1]\n"
            "buffer {name: \"%x\", storage: input, elements: 3*s0}\n"
            "buffer {name: \"%i\", storage: input, index: 1, element_size: 8, elements: 1*s1, last: 1}\n"
            "buffer {name: \"%g\", storage: output, elements: 3*s1, first: 1, last: 1}\n"
            "buffer {name: \"%y\", elements: 3*s0, last: 1}\n"
            "stage {symbol: \"stage_0\", rows: 1*s0}\n"
            "stage {kind: call, index: 1, symbol: \"gather\", call: gather {table: 3, result: 2, index: {buffer: 1, "
            "count: 1*s1}, rows: 1*s0, columns: 3}}\n");
}

TEST(PlanText, WhatIsNoPlanIsRefusedWithItsLine) {
  const auto error = [](const std::string& text) { return testing::error_of([&] { read_plan(text); }); };
  EXPECT_EQ(error("symbols []\nfoo 3"), "line 2 of a plan: 'foo' is no part of a plan");
  EXPECT_EQ(error("symbols [\"B\""), "line 1 of a plan: there should be a ']'");
  EXPECT_EQ(error("stage {kind: row}"), "line 1 of a plan: 'row' is not one of rows, scan, call, loop, cond, while");
  EXPECT_EQ(error("stage {kinds: rows}"), "line 1 of a plan: there is no field 'kinds'");
  EXPECT_EQ(error("stage {call: sort {}}"), "line 1 of a plan: 'sort' is no kernel");
  EXPECT_EQ(error("stage {index: 99999999999999999999}"), "line 1 of a plan: there should be a number of 64 bits");
  EXPECT_EQ(error("stage {outside: 1}"), "line 1 of a plan: '1' should be true or false");
  EXPECT_EQ(error("buffer {name: \"x}"), "line 1 of a plan: there should be a '\"'");
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "{control: {regions: [[";
  EXPECT_EQ(error("stage " + deep), "line 1 of a plan: stages are nested more than 200 deep");
}

TEST(PlanText, ATextCutShortIsRefused) {
  const std::string text = write_plan(everything());
  const size_t last_line = text.rfind('\n', text.size() - 2);
  for (size_t end = last_line + 2; end + 1 < text.size(); ++end)
    EXPECT_NE(testing::error_of([&] { read_plan(text.substr(0, end)); }), "") << end;
}

}  // namespace
}  // namespace weft::runtime::plan_text_test
