// Scans over long sequences on more threads than there are cores: the same bits as on one thread, however far threads
// drift apart.

#include <cstdlib>
#include <cstring>

#include "base/settings.h"
#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "programs.h"
#include "random_program.h"
#include "shared_steps.h"
#include "wide_step.h"

namespace weft::threads_test {
namespace {

using interpreter::Array;

/// How many random programs of each kind: WEFT_RANDOM_STEPS, else a few.
uint64_t rounds() {
  const char* wanted = std::getenv("WEFT_RANDOM_STEPS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : 12;
}

class Threads : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    mutable_settings().delays = GetParam();
    mutable_settings().share_all = true;
  }
  void TearDown() override {
    mutable_settings().delays = false;
    mutable_settings().share_all = false;
    mutable_settings().contention = -1;
  }

  /// Repeated calls on teams of several sizes against one thread. In the second one members part within scans.
  void compare(std::string text, const std::vector<Array>& inputs, const ir::Bindings& bindings) {
    if (GetParam()) text = "// with delays\n" + text;  // not the machine code that has none
    runtime::SerialTeam alone;
    const std::vector<Array> expected = testing::run_native(text, inputs, bindings, alone);
    for (int64_t threads : {2, 3, 7})
      for (int repeat = 0; repeat < 2; ++repeat) {
        mutable_settings().contention = repeat == 0 ? 0 : threads;
        const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_EQ(std::memcmp(found[i].bytes.data(), expected[i].bytes.data(), expected[i].bytes.size()), 0)
              << "result " << i << " with " << threads << " threads, call " << repeat << "\n"
              << text;
      }
  }

  void compare(const ir::Program& program, uint64_t seed, const ir::Bindings& bindings) {
    SCOPED_TRACE(fmt::format("seed {}, T {}, B {}", seed, bindings.at("T"), bindings.at("B")));
    compare(ir::print(program), testing::random_inputs(program, bindings, seed), bindings);
  }

  /// Fewer steps on a machine that makes threads wait.
  int64_t steps(int64_t wanted) const { return GetParam() ? wanted / 10 : wanted; }
};

const char* const kGate = R"(program @gate(%x: f32[T,B,256], %h0: f32[B,256]) {
  %half = constant {value = 0.5} : f32[]
  %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
    %c = broadcast %half {dims = []} : f32[B,256]
    %hc = mul %h, %c : f32[B,256]
    %a = add %hc, %xt : f32[B,256]
    %h1 = tanh %a : f32[B,256]
    %ex = mul %h1, %xt : f32[B,256]
    %y = reduce_sum %ex {dims = [1]} : f32[B]
    yield carry(%h1) ys(%y)
  } : f32[B,256], f32[T,B]
  return %hT, %ys
})";

TEST_P(Threads, AReductionInTheResultsOnly) {
  for (int64_t b : {1, 3, 7}) {
    const ir::Bindings bindings = {{"T", steps(5000)}, {"B", b}};
    const ir::Program program = engine::compile(kGate)->program();
    compare(kGate, testing::random_inputs(program, bindings, 1), bindings);
  }
}

TEST_P(Threads, BarriersThatOneRuleAsksFor) {
  mutable_settings().disabled = testing::kTakesLoopsApart;
  for (int64_t b : {1, 3}) {
    const int64_t length = steps(3000);
    for (const char* text : {testing::kReadsAnOldCarry, testing::kReadsEnteredRows}) {
      const ir::Bindings bindings = {{"T", length}, {"B", b}, {"N", length * (b + 1) / 2}};
      const ir::Program program = engine::compile(text)->program();
      compare(text, testing::random_inputs(program, bindings, 1), bindings);
    }
  }
  mutable_settings().disabled.clear();
}

/// Few rows, so that columns are shared, and some more rows.
const int64_t kRows[] = {1, 1, 2, 3, 5, 1, 7, 9};

TEST_P(Threads, RandomSteps) {
  for (uint64_t seed = 0; seed < rounds() && !HasFatalFailure(); ++seed)
    compare(testing::random_wide_step(seed, {.products = seed % 3 == 0}), seed,
            {{"T", seed % 4 == 0 ? steps(5000) : steps(600)}, {"B", kRows[seed % 8]}});
}

TEST_P(Threads, RandomStepsInOtherTypes) {
  for (DType dtype : {DType::kF64, DType::kBF16})
    for (uint64_t seed = 0; seed < rounds() / 3 && !HasFatalFailure(); ++seed)
      compare(testing::random_wide_step(seed, {.products = seed % 3 == 0, .dtype = dtype}), seed,
              {{"T", steps(600)}, {"B", kRows[seed % 8]}});
}

TEST_P(Threads, RandomRaggedSteps) {
  for (uint64_t seed = 0; seed < rounds() && !HasFatalFailure(); ++seed) {
    const int64_t length = steps(seed % 4 == 0 ? 3000 : 300), rows = kRows[seed % 8];
    const int64_t packed = rows + (length - 1) * (1 + static_cast<int64_t>(seed) % rows);
    compare(testing::random_wide_step(seed, {.products = seed % 3 == 0, .ragged = true}), seed,
            {{"T", length}, {"B", rows}, {"N", packed}});
  }
}

TEST_P(Threads, RandomNestedSteps) {
  for (uint64_t seed = 0; seed < rounds() / 2 && !HasFatalFailure(); ++seed)
    compare(testing::random_wide_step(seed, {.products = seed % 3 == 0, .nested = true}), seed,
            {{"T", steps(300)}, {"B", kRows[seed % 8]}});
}

TEST_P(Threads, DerivativesOfRandomSteps) {
  for (uint64_t seed = 0; seed < rounds() / 2 && !HasFatalFailure(); ++seed) {
    const ir::Program program = testing::random_wide_step(seed, {.products = seed % 3 == 0});
    std::vector<bool> wanted;
    for (ir::ValueId input : program.body.args) wanted.push_back(is_floating(program.type(input).dtype));
    compare(passes::vjp_of_primals(program, wanted), seed, {{"T", steps(400)}, {"B", kRows[seed % 8]}});
  }
}

/// The result with which all of these are compared is itself right.
TEST(ThreadsOracle, OneThreadIsTheInterpreter) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const bool ragged = seed % 4 == 3;
    const ir::Program program = testing::random_wide_step(
        seed, {.products = seed % 3 == 0, .ragged = ragged, .nested = seed % 4 == 2, .dtype = DType::kF64});
    const ir::Bindings bindings = {{"T", 4}, {"B", 3}, {"N", 7}};
    const std::vector<Array> inputs = testing::random_inputs(program, bindings, seed);
    const std::vector<Array> expected = interpreter::evaluate(program, inputs);
    for (int64_t threads : {1, 3}) {
      mutable_settings().share_all = threads > 1;
      const auto found = testing::run_native(ir::print(program), inputs, bindings, runtime::own_team(threads));
      mutable_settings().share_all = false;
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto x = found[i].to_doubles(), y = expected[i].to_doubles();
        for (size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], y[k], 1e-9) << "seed " << seed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Threads, ::testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "delayed" : "as_they_come"); });

}  // namespace
}  // namespace weft::threads_test
