// Stages that run within a scan, a few steps at a time: which stages may, when they do, and that the results are the
// same.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/settings.h"
#include "base/target.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "lowered.h"
#include "machine.h"
#include "native_run.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/plan/run.h"
#include "runtime/plan/window.h"

namespace weft::windows_test {
namespace {

struct Program {
  const char* name;
  int64_t windows;  ///< of all scans
  const char* text;
};

const Program kPrograms[] = {
    {"a_recurrence", 1, R"(program @p(%h0: f32[B,20], %x: f32[T,B,9], %v: f32[20,9], %w: f32[20,20]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %hT, %ys = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,20]
         %b = add %r, %at : f32[B,20]
         %n = tanh %b : f32[B,20]
         yield carry(%n) ys(%n)
       } : f32[B,20], f32[T,B,20]
       return %ys, %hT })"},
    {"backwards", 1, R"(program @p(%h0: f32[B,20], %x: f32[T,B,9], %v: f32[20,9], %w: f32[20,20]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %hT, %ys = scan reverse length T carry(%h = %h0) xs(%at = %a) {
         %r = matmul %h, %w {transpose_b = true} : f32[B,20]
         %b = add %r, %at : f32[B,20]
         %n = tanh %b : f32[B,20]
         yield carry(%n) ys(%n)
       } : f32[B,20], f32[T,B,20]
       return %ys, %hT })"},
    {"both_ways_of_two_stacks", 2, R"(program @p(%h0: f32[B,20], %x: f32[T,B,20], %v: f32[20,20], %w: f32[20,20]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %f, %fs = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = mul %h, %at : f32[B,20]
         %n = tanh %r : f32[B,20]
         yield carry(%n) ys(%n)
       } : f32[B,20], f32[T,B,20]
       %c = matmul %x, %w {transpose_b = true} : f32[T,B,20]
       %g, %gs = scan reverse length T carry(%h = %h0) xs(%ct = %c) {
         %r = mul %h, %ct : f32[B,20]
         %n = tanh %r : f32[B,20]
         yield carry(%n) ys(%n)
       } : f32[B,20], f32[T,B,20]
       return %fs, %gs, %f, %g })"},
    {"rows_in_rows", 1, R"(program @p(%h0: f32[B,3,20], %x: f32[T,B,3,9], %v: f32[20,9]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,3,20]
       %hT, %ys = scan length T carry(%h = %h0) xs(%at = %a) {
         %b = add %h, %at : f32[B,3,20]
         %n = tanh %b : f32[B,3,20]
         yield carry(%n) ys(%n)
       } : f32[B,3,20], f32[T,B,3,20]
       return %ys, %hT })"},
    {"of_two_scans", 0, R"(program @p(%h0: f32[B,20], %x: f32[T,B,9], %v: f32[20,9]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %f, %fs = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = mul %h, %at : f32[B,20]
         yield carry(%r) ys(%r)
       } : f32[B,20], f32[T,B,20]
       %g, %gs = scan reverse length T carry(%h = %h0) xs(%ct = %a) {
         %r = add %h, %ct : f32[B,20]
         yield carry(%r) ys(%r)
       } : f32[B,20], f32[T,B,20]
       return %fs, %gs, %f, %g })"},
    {"a_result", 0, R"(program @p(%h0: f32[B,20], %x: f32[T,B,9], %v: f32[20,9]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %f, %fs = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = mul %h, %at : f32[B,20]
         yield carry(%r) ys(%r)
       } : f32[B,20], f32[T,B,20]
       return %a, %fs, %f })"},
    {"a_donated_input", 0, R"(program @p(%h0: f32[B,20], %x: f32[T,B,20], %v: f32[20,20]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %f, %fs = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = mul %h, %at : f32[B,20]
         yield carry(%r) ys(%r)
       } : f32[B,20], f32[T,B,20]
       %n = tanh %x : f32[T,B,20]
       return %fs, %f, %n in %x })"},
    {"steps_that_mix_rows", 0, R"(program @p(%h0: f32[B,20], %x: f32[T,B,9], %v: f32[20,9]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,20]
       %f, %fs = scan length T carry(%h = %h0) xs(%at = %a) {
         %r = mul %h, %at : f32[B,20]
         %s = reduce_sum %r {dims = [0]} : f32[20]
         %t = broadcast %s {dims = [1]} : f32[B,20]
         %n = tanh %t : f32[B,20]
         yield carry(%n) ys(%r)
       } : f32[B,20], f32[T,B,20]
       return %fs, %f })"},
};

std::ostream& operator<<(std::ostream& out, const Program& program) { return out << program.text; }

class Windows : public ::testing::TestWithParam<Program> {
 protected:
  ~Windows() override {
    mutable_settings().window = mutable_settings().contention = -1;
    mutable_settings().share_all = mutable_settings().guard = mutable_settings().delays = false;
  }
};

TEST_P(Windows, AreOfStagesThatOneScanReads) {
  const testing::Lowered lowered(GetParam().text);
  int64_t windows = 0;
  for (const runtime::StagePlan& stage : lowered.schedule.plan.stages) windows += std::ssize(stage.windows);
  EXPECT_EQ(windows, GetParam().windows);
}

TEST_P(Windows, GiveTheResultsOfTheInterpreter) {
  const ir::Program program = ir::parse(GetParam().text);
  for (int64_t batch : {0, 1, 7})
    for (int64_t length : {0, 1, 5, 8}) {
      const ir::Bindings bindings{{"T", length}, {"B", batch}};
      const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
      const std::vector<interpreter::Array> expected = interpreter::evaluate(program, inputs);
      for (int64_t window : {-1, 0, 1, 2, 5})
        for (int64_t threads : {1, 3}) {
          mutable_settings().window = window;
          mutable_settings().share_all = threads > 1;
          mutable_settings().guard = window % 2 != 0;
          const auto found = testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(threads));
          EXPECT_LE(testing::difference(found, expected), 1e-5)
              << "T " << length << ", B " << batch << ", window " << window << ", " << threads << " threads";
        }
    }
}

// Members with 64 KB of a step and more have one place for their windows, and are at different steps in it.
TEST_P(Windows, OfMembersWithManyRowsLieInOnePlace) {
  const ir::Bindings bindings{{"T", 7}, {"B", 2700}};
  const std::vector<interpreter::Array> inputs = testing::random_inputs(ir::parse(GetParam().text), bindings, 3);
  mutable_settings().window = 0;
  const auto expected = testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(1));
  mutable_settings().window = 2;
  mutable_settings().share_all = mutable_settings().delays = true;
  for (int64_t threads : {2, 3}) {
    const auto found = testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(threads));
    EXPECT_EQ(testing::difference(found, expected), 0) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Windows, ::testing::ValuesIn(kPrograms),
                         [](const auto& test) { return test.param.name; });

/// Scans whose columns threads share: one with a product in its windows, whose columns are shared too, one backwards
/// with sums of rows in them.
const Program kSharedPrograms[] = {
    {"a_product", 1, R"(program @p(%h0: f32[B,200], %x: f32[T,B,9], %v: f32[200,9], %w: f32[200,200]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,200]
       %small = constant {value = 0.03} : f32[]
       %hT, %ys = scan length T carry(%h = %h0) xs(%at = %a) {
         %p = matmul %h, %w {transpose_b = true} : f32[B,200]
         %c = broadcast %small {dims = []} : f32[B,200]
         %r = mul %p, %c : f32[B,200]
         %b = add %r, %at : f32[B,200]
         %n = tanh %b : f32[B,200]
         yield carry(%n) ys(%n)
       } : f32[B,200], f32[T,B,200]
       return %ys, %hT })"},
    {"sums_of_rows_backwards", 1, R"(program @p(%h0: f32[B,200], %x: f32[T,B,9], %v: f32[200,9], %w: f32[200,200]) {
       %a = matmul %x, %v {transpose_b = true} : f32[T,B,200]
       %s = reduce_sum %a {dims = [2]} : f32[T,B]
       %t = broadcast %s {dims = [0, 1]} : f32[T,B,200]
       %d = sub %a, %t : f32[T,B,200]
       %small = constant {value = 0.03} : f32[]
       %hT, %ys = scan reverse length T carry(%h = %h0) xs(%dt = %d) {
         %p = matmul %h, %w {transpose_b = true} : f32[B,200]
         %c = broadcast %small {dims = []} : f32[B,200]
         %r = mul %p, %c : f32[B,200]
         %b = add %r, %dt : f32[B,200]
         %n = tanh %b : f32[B,200]
         yield carry(%n) ys(%n)
       } : f32[B,200], f32[T,B,200]
       return %ys, %hT })"},
};

class SharedWindows : public Windows {};

TEST_P(SharedWindows, AreOfScansThatThreadsShare) {
  mutable_settings().share_all = true;
  mutable_settings().window = 3;
  const testing::Lowered lowered(GetParam().text);
  const runtime::Plan& plan = lowered.schedule.plan;
  const std::vector<int64_t> values = runtime::values_of(plan, {5, 40});
  const auto sizes = runtime::stage_sizes(plan, values, runtime::packs_of_products(plan, values), 3);
  auto scan = std::ranges::find(plan.stages, runtime::StagePlan::Kind::kScan, &runtime::StagePlan::kind);
  EXPECT_EQ(std::ssize(scan->windows), GetParam().windows);
  EXPECT_EQ(sizes[static_cast<size_t>(scan->index)].sharers, 3);
  EXPECT_EQ(sizes[static_cast<size_t>(scan->index)].window, 3);
}

// The same bits, wherever members part from each other, also within a window.
TEST_P(SharedWindows, GiveTheResultsOfOneThread) {
  const ir::Program program = ir::parse(GetParam().text);
  for (auto [batch, length] : {std::pair{1, 40}, {5, 23}, {7, 1}, {3, 8}}) {
    const ir::Bindings bindings{{"T", length}, {"B", batch}};
    const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
    mutable_settings().window = 0;
    mutable_settings().share_all = mutable_settings().guard = mutable_settings().delays = false;
    const auto expected = testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(1));
    EXPECT_LE(testing::difference(expected, interpreter::evaluate(program, inputs)), 1e-5);
    mutable_settings().share_all = true;
    for (int64_t window : {1, 2, 5, 16})
      for (int64_t parted : {0, 1, 2, 3, 5}) {  // the number of the look at which they part
        mutable_settings().window = window;
        mutable_settings().contention = parted == 0 ? 0 : 1 + parted;
        mutable_settings().guard = window == 5;
        mutable_settings().delays = window == 2;
        const auto found = testing::run_native(GetParam().text, inputs, bindings, runtime::own_team(3));
        EXPECT_EQ(testing::difference(found, expected), 0)
            << "T " << length << ", B " << batch << ", window " << window << ", parted at look " << parted;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedWindows, ::testing::ValuesIn(kSharedPrograms),
                         [](const auto& test) { return test.param.name; });

/// The windows of the program's scan, and the memory of its stack.
struct WindowOfScan {
  int64_t steps = 0, bytes = 0, places = 1;
};

WindowOfScan window_of(int64_t length, int64_t batch, int64_t threads, const std::string& text = kPrograms[0].text) {
  const testing::Lowered lowered(text);
  const runtime::Plan& plan = lowered.schedule.plan;
  const std::vector<int64_t> values = runtime::values_of(plan, {batch, length});
  const auto sizes = runtime::stage_sizes(plan, values, runtime::packs_of_products(plan, values), threads);
  auto scan = std::ranges::find(plan.stages, runtime::StagePlan::Kind::kScan, &runtime::StagePlan::kind);
  const auto buffers = runtime::window_buffers(plan, sizes, values, threads);
  const auto whole = plan.buffers[static_cast<size_t>(scan->windows[0].buffers[0])].elements.evaluate(values) * 4;
  const runtime::PlacesOfMembers places = buffers.empty() ? runtime::PlacesOfMembers{.bytes = whole} : buffers[0];
  return {sizes[static_cast<size_t>(scan->index)].window, places.bytes, places.count};
}

TEST(WindowSteps, AreAllWhereTheStackFitsTheCache) {
  testing::on_each_machine([](const testing::Machine&) {
    EXPECT_EQ(window_of(10, 4, 1).steps, 0);
    EXPECT_EQ(window_of(10, 4, 1).bytes, 10 * 4 * 20 * 4);
  });
}

TEST(WindowSteps, FillAPartOfTheCacheElsewhere) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t rows = machine.private_cache() / (20 * 4);
    const WindowOfScan found = window_of(rows, 10, 1);
    EXPECT_GT(found.steps, 1);
    EXPECT_LE(found.bytes, machine.private_cache() / 2);
    EXPECT_GT(window_of(rows, 1, 1).steps, 1);
    EXPECT_GT(window_of(rows, 128, 2).steps, 0);
    EXPECT_GT(window_of(rows, 8, 2).steps, 1);
    EXPECT_EQ(window_of(rows, 7, 2).steps, 0) << "a thread's rows of a step are too few for a block";
  });
}

TEST(WindowSteps, AreOneWhereAStepIsLargerThanTheCache) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t rows = machine.private_cache() / (20 * 4) + 1000;
    EXPECT_EQ(window_of(10, rows, 1).steps, 1);
    EXPECT_EQ(window_of(10, machine.shared_cache() / (20 * 4), 1).steps, 0) << "it leaves the shared cache too";
  });
}

/// A plain recurrence of H units and H inputs.
const char* const kOfUnits = R"(program @p(%x: f32[T,B,H], %h0: f32[B,H], %w: f32[H,H], %u: f32[H,H]) {
       %i = matmul %x, %w {transpose_b = true} : f32[T,B,H]
       %hT, %hs = scan length T carry(%h = %h0) xs(%it = %i) {
         %r = matmul %h, %u {transpose_b = true} : f32[B,H]
         %a = add %r, %it : f32[B,H]
         %n = tanh %a : f32[B,H]
         yield carry(%n) ys(%n)
       } : f32[B,H], f32[T,B,H]
       return %hs })";

TEST(WindowSteps, HaveRowsWhileWhichLargeWeightsArrive) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t cache = machine.private_cache();
    int64_t units = 256;
    while ((units + 64) * (units + 64) * 4 <= cache) units += 64;
    const int64_t length = 4 * cache / (units * 4);
    const std::string text = testing::replaced(kOfUnits, "H", std::to_string(units));
    EXPECT_GE(window_of(length, 16, 1, text).steps * 16, target::kRowsBehindWeights);
    EXPECT_EQ(window_of(length, 1, 1, text).steps, 0) << "each step waits for its own weights";
  });
}

TEST(WindowSteps, OfSharedColumnsReadAPartOfTheWeights) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t cache = machine.private_cache();
    int64_t units = 256;
    while (units * units * 4 <= cache) units += 128;  // a thread's half is more than half a cache
    const int64_t length = 4 * cache / (units * 4);
    const std::string text = testing::replaced(kOfUnits, "H", std::to_string(units));
    mutable_settings().share_all = true;
    EXPECT_GE(window_of(length, 6, 2, text).steps * 6, target::kRowsBehindWeights);
    EXPECT_EQ(window_of(length, 1, 2, text).steps, 0) << "each step waits for its own weights";
    EXPECT_EQ(window_of(length, 1, 3, text).steps > 0, units * units * 4 / 3 <= cache / 2);
  });
}

TEST(WindowSteps, OfWeightsFromMemoryHaveRowsBehindThem) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t shared = machine.shared_cache(), rows = 64;
    int64_t units = 512;
    while (units * units * 4 <= shared / 4) units += 128;
    const int64_t whole = shared / (2 * rows * units * 4);  // steps whose stack fits the shared cache
    const std::string text = testing::replaced(kOfUnits, "H", std::to_string(units));
    const WindowOfScan found = window_of(3 * whole, 2 * rows, 2, text);
    EXPECT_GE(found.steps * rows, target::kRowsBehindMemory);
    EXPECT_LE(found.bytes, shared / 2);
    EXPECT_EQ(window_of(whole - 1, 2 * rows, 2, text).steps, 0);
    EXPECT_EQ(window_of(3 * whole, 2, 2, text).steps, 0) << "each step waits for its own weights";
    EXPECT_EQ(window_of(8 * 3 * whole, 15, 1, text).steps, 0) << "the same";
    EXPECT_GT(window_of(8 * 3 * whole, 16, 1, text).steps, 0);
  });
}

TEST(WindowSteps, OfWeightsFromMemoryFillWhatTheSharedCacheHasForThem) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t shared = machine.shared_cache(), rows = 64, units = shared / 4096;
    std::string text = testing::replaced(kOfUnits, "%w: f32[H,H]", "%w: f32[H,384]");
    text = testing::replaced(text, "%x: f32[T,B,H]", "%x: f32[T,B,384]");
    text = testing::replaced(text, "H", std::to_string(units));
    const WindowOfScan found = window_of(64, 2 * rows, 2, text);
    EXPECT_GE(found.steps * rows, target::kLeastRowsBehindMemory);
    EXPECT_LT(found.steps * rows, target::kRowsBehindMemory);
    EXPECT_LE(found.bytes, shared / 2);
  });
}

TEST(WindowSteps, MembersWithFewBytesOfAStepHaveTheirOwnPlaces) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const int64_t rows = 1 << 10, length = 2 * machine.private_cache() / (rows * 40);  // rows of 80 bytes
    EXPECT_EQ(window_of(length, rows, 2).places, 2);
    EXPECT_EQ(window_of(length, 4 * rows, 2).places, 1);
    EXPECT_EQ(window_of(length, rows, 1).places, 1) << "there is one member";
  });
}

}  // namespace
}  // namespace weft::windows_test
