// Stages that the last step of a scan skips: which stages, and that no result needs them.

#include "planning/loops/last_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/settings.h"
#include "interpreter/interpreter.h"
#include "lowered.h"
#include "native_run.h"
#include "random_program.h"

namespace weft::last_step_test {
namespace {

struct Case {
  const char* name;
  std::vector<bool> skipped;  ///< of the step's stages
  const char* results;        ///< that the program returns
  const char* step;
};

std::string text_of(const Case& test) {
  return std::string("program @p(%h0: f32[B,50], %x: f32[T,B,50], %w: f32[50,50]) {\n") +
         "%hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {\n" + test.step + "} : f32[B,50], f32[T,B,50]\n" +
         "return " + test.results + " }";
}

constexpr const char* kGradient = R"(%g = add %h, %xt : f32[B,50]
  %y = tanh %g : f32[B,50]
  %d = matmul %y, %w : f32[B,50]
  %n = add %d, %g : f32[B,50]
  yield carry(%n) ys(%y)
)";
constexpr const char* kTwoStages = R"(%g = add %h, %xt : f32[B,50]
  %y = tanh %g : f32[B,50]
  %d = matmul %y, %w : f32[B,50]
  %e = tanh %d : f32[B,50]
  %n = matmul %e, %w {transpose_b = true} : f32[B,50]
  yield carry(%n) ys(%y)
)";
constexpr const char* kCarryIsResult = R"(%g = matmul %h, %w : f32[B,50]
  %n = add %g, %xt : f32[B,50]
  yield carry(%n) ys(%n)
)";

const Case kCases[] = {
    {"a_product_for_the_next_step", {false, true}, "%ys", kGradient},
    {"its_carry_is_returned", {false, false}, "%ys, %hT", kGradient},
    {"what_only_it_reads", {false, true, true}, "%ys", kTwoStages},
    {"a_carry_that_is_a_result", {false}, "%ys", kCarryIsResult},
};

std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

class LastStep : public ::testing::TestWithParam<Case> {
 protected:
  ~LastStep() override {
    mutable_settings().guard = mutable_settings().share_all = false;
    mutable_settings().window = -1;
  }
};

TEST_P(LastStep, SkipsWhatOnlyTheNextStepNeeds) {
  const testing::Lowered lowered(text_of(GetParam()));
  ASSERT_EQ(lowered.schedule.scans.size(), 1U);
  EXPECT_EQ(lowered.schedule.scans.begin()->second.for_next_step, GetParam().skipped);
}

TEST_P(LastStep, ResultsAreThoseOfTheInterpreter) {
  const std::string text = text_of(GetParam());
  const ir::Program program = ir::parse(text);
  for (int64_t steps : {0, 1, 2, 5})
    for (int64_t rows : {0, 1, 7})
      for (int64_t threads : {1, 3}) {
        mutable_settings().share_all = threads > 1;
        mutable_settings().guard = steps < 3;
        mutable_settings().window = steps == 5 ? 2 : -1;
        const ir::Bindings bindings{{"T", steps}, {"B", rows}};
        const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 5);
        const std::vector<interpreter::Array> expected = interpreter::evaluate(program, inputs);
        const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          const std::vector<double> x = found[i].to_doubles(), y = expected[i].to_doubles();
          for (size_t j = 0; j < y.size(); ++j)
            ASSERT_NEAR(x[j], y[j], 1e-4 * std::max(1.0, std::abs(y[j]))) << "result " << i << ", T = " << steps;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(All, LastStep, ::testing::ValuesIn(kCases), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft::last_step_test
