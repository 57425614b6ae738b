// What ThreadSanitizer must see: the accesses of machine code and of kernels; and a program in whose steps threads once
// drifted apart.

#include "base/thread_sanitizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "base/settings.h"
#include "gradients.h"
#include "ir/text/parser.h"
#include "native_run.h"
#include "random_program.h"

namespace weft::thread_sanitizer_test {
namespace {

using interpreter::Array;

class ThreadSanitizer : public ::testing::Test {
 protected:
  ThreadSanitizer() { mutable_settings().share_all = true; }
  ~ThreadSanitizer() override { mutable_settings().share_all = false; }
};

/// Runs everything twice at the same time, in the same memory.
class RacingTeam : public runtime::Team {
 public:
  int64_t size() const override { return 2; }
  void run(const std::function<void(int64_t, int64_t)>& member) override {
    std::thread other([&] { member(0, 1); });
    member(0, 1);
    other.join();
  }
};

[[noreturn]] void race(const std::string& text) {
  RacingTeam team;
  ir::Program program = ir::parse(text);
  ir::Bindings bindings{{"B", 3}};
  testing::run_native(text, testing::random_inputs(program, bindings, 1), bindings, team);
  std::exit(0);
}

struct Access {
  const char *name, *text;
  const char* report;  ///< the name that must be in the report
};

class ThreadSanitizerSees : public ThreadSanitizer, public ::testing::WithParamInterface<Access> {};

TEST_P(ThreadSanitizerSees, TheRace) {
  if (!kThreadSanitizer) GTEST_SKIP() << "needs a build with WEFT_SANITIZE=thread";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(race(GetParam().text), ::testing::ExitedWithCode(66), std::string("data race.*") + GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(All, ThreadSanitizerSees,
                         ::testing::Values(Access{"Vectors", R"(program @vectors(%x: f32[B,16]) {
          %y = tanh %x : f32[B,16]
          return %y
        })",
                                                  "@vectors"},
                                           Access{"MaskedVectors", R"(program @masked(%x: f32[B,5]) {
          %y = tanh %x : f32[B,5]
          return %y
        })",
                                                  "@masked"},
                                           Access{"ASteps", R"(program @step(%x: f32[7,B,5], %h: f32[B,5]) {
          %c, %ys = scan length 7 carry(%c0 = %h) xs(%xt = %x) {
            %s = add %c0, %xt : f32[B,5]
            %t = tanh %s : f32[B,5]
            yield carry(%t) ys(%t)
          } : f32[B,5], f32[7,B,5]
          return %ys
        })",
                                                  "@step"},
                                           Access{"APackedProduct", R"(program @product(%x: f32[B,8], %w: f32[8,32]) {
          %y = matmul %x, %w : f32[B,32]
          return %y
        })",
                                                  "announce"},
                                           Access{"AReduction", R"(program @sum(%x: f32[B,300]) {
          %y = reduce_sum %x {dims = [0]} : f32[300]
          return %y
        })",
                                                  "announce|@sum"},
                                           Access{"ATransposition", R"(program @transposed(%x: f32[B,16]) {
          %y = transpose %x {perm = [1, 0]} : f32[16,B]
          return %y
        })",
                                                  "movement"}),
                         [](const auto& test) { return std::string(test.param.name); });

/// The reduction makes every thread do whole rows, and the carry is made of a thread's own columns.
TEST_F(ThreadSanitizer, StepsWithAReductionInTheirResults) {
  const std::string text = R"(program @gate(%h0: f32[B,256], %x: f32[T,B,256]) {
    %half = constant {value = 0.5} : f32[]
    %h, %ys = scan length T carry(%c = %h0) xs(%xt = %x) {
      %k = broadcast %half {dims = []} : f32[B,256]
      %d = mul %k, %c : f32[B,256]
      %s = add %d, %xt : f32[B,256]
      %e = tanh %s : f32[B,256]
      %p = mul %e, %xt : f32[B,256]
      %y = reduce_sum %p {dims = [1]} : f32[B]
      yield carry(%e) ys(%y)
    } : f32[B,256], f32[T,B]
    return %h, %ys
  })";
  ir::Bindings bindings{{"T", 500}, {"B", 1}};
  std::vector<Array> inputs = testing::random_inputs(ir::parse(text), bindings, 5);
  std::vector<Array> alone = testing::run_native(text, inputs, bindings, runtime::own_team(1));
  for (int64_t threads : {2, 3})
    EXPECT_LE(testing::difference(testing::run_native(text, inputs, bindings, runtime::own_team(threads)), alone), 1e-4)
        << threads << " threads";
}

}  // namespace
}  // namespace weft::thread_sanitizer_test
