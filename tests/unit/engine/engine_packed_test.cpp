// Ragged scans as machine code against the interpreter, for many divisions among threads; and how rows are divided.

#include <algorithm>
#include <array>
#include <regex>
#include <tuple>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/threads/share.h"
#include "runtime/threads/team.h"

namespace weft::engine_packed_test {
namespace {

using interpreter::Array;
using testing::fallbacks;
using testing::run_native;

/// Machine code against the interpreter on many numbers of threads, all in machine code.
void compare(const std::string& text, double tolerance, const std::vector<std::array<int64_t, 3>>& sizes) {
  ir::Program program = ir::parse(text);
  int64_t before = fallbacks();
  for (auto [t, b, n] : sizes) {
    ir::Bindings bindings{{"T", t}, {"B", b}, {"N", n}};
    for (uint64_t seed : {1, 2}) {
      auto inputs = testing::random_inputs(program, bindings, seed);
      auto want = interpreter::evaluate(program, inputs);
      std::string what = fmt::format("{} T={} B={} N={} seed {} threads ", program.name, t, b, n, seed);
      for (int64_t threads : {1, 2, 3, 8})
        EXPECT_LE(testing::difference(run_native(text, inputs, bindings, runtime::own_team(threads)), want), tolerance)
            << what << threads;
    }
  }
  EXPECT_EQ(fallbacks(), before);
}

const std::vector<std::array<int64_t, 3>> kSizes = {{0, 3, 0},  {1, 1, 1},  {1, 9, 9},    {7, 1, 7},
                                                    {5, 3, 15}, {6, 4, 13}, {9, 33, 150}, {40, 12, 301}};

class EnginePacked : public ::testing::TestWithParam<const char*> {};

TEST_P(EnginePacked, ForwardEqualsInterpreter) {
  std::string text = testing::program_text(GetParam());
  compare(text, 2e-5, kSizes);
  text.replace(text.find("scan length"), 11, "scan reverse length");
  compare(text, 2e-5, kSizes);
}

TEST_P(EnginePacked, BackwardEqualsInterpreter) {
  ir::Program program = ir::parse(testing::program_text(GetParam()));
  compare(ir::print(passes::vjp_of_primals(program, testing::floating_inputs(program))), 1e-4, kSizes);
}

TEST_P(EnginePacked, BadBatchSizesAreRefused) {
  std::string text = testing::program_text(GetParam());
  ir::Program program = ir::parse(text);
  ir::Bindings bindings{{"T", 40}, {"B", 12}, {"N", 301}};
  auto inputs = testing::random_inputs(program, bindings, 1);
  const auto good = inputs[1];
  for (auto [at, value, message] : {std::tuple<size_t, int64_t, const char*>{0, 13, "begin with 13"},
                                    {39, 0, "batch_sizes[39] is 0"},
                                    {39, int64_t{1} << 62, "must not increase"},
                                    {5, -3, "batch_sizes[5] is -3"}}) {
    inputs[1] = good;
    inputs[1].data<int64_t>()[at] = value;
    for (int64_t threads : {1, 2, 8}) {
      std::string error = testing::error_of([&] { run_native(text, inputs, bindings, runtime::own_team(threads)); });
      EXPECT_NE(error.find(message), std::string::npos) << error;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EnginePacked, ::testing::Values("packed_gru", "packed_lstm"));

/// Few wide sequences: columns are shared, and the carries of rows that end or enter are copied by columns. The carries
/// come from a product, an elementwise op, a concatenation and a sum; one is another carry as it is.
TEST(EnginePackedWide, FewSequencesShareColumns) {
  std::string text = R"(program @wide(%x: f32[N,256], %sizes: i64[T], %a: f32[B,256], %b: f32[B,256], %c: f32[B,2,128],
                                      %d: f32[B], %e: f32[B,256], %w: f32[256,256], %v: f32[256,128]) {
    %aT, %bT, %cT, %dT, %eT, %ys, %zs = scan length T ragged(%sizes, B, N)
        carry(%p = %a, %q = %b, %r = %c, %s = %d, %u = %e) xs(%xt = %x) {
      %p1 = matmul %q, %w : f32[B,256]
      %g = add %p, %xt : f32[B,256]
      %h = tanh %g : f32[B,256]
      %m = matmul %h, %v : f32[B,128]
      %n = tanh %m : f32[B,128]
      %k = slice %h {dim = 1, start = 128, limit = 256} : f32[B,128]
      %q1 = concat %n, %k {dim = 1} : f32[B,256]
      %rb = broadcast %m {dims = [0, 2]} : f32[B,2,128]
      %ra = add %r, %rb : f32[B,2,128]
      %r1 = tanh %ra : f32[B,2,128]
      %sum = reduce_sum %h {dims = [1]} : f32[B]
      %s1 = add %s, %sum : f32[B]
      %t = tanh %p1 : f32[B,256]
      yield carry(%t, %q1, %r1, %s1, %p) ys(%h, %s1)
    } : f32[B,256], f32[B,256], f32[B,2,128], f32[B], f32[B,256], f32[N,256], f32[N]
    return %aT, %bT, %cT, %dT, %eT, %ys, %zs
  })";
  for (bool reverse : {false, true}) {
    if (reverse) text.replace(text.find("scan length"), 11, "scan reverse length");
    compare(std::regex_replace(text, std::regex("f32\\["), "f64["), 1e-9,
            {{9, 1, 9}, {7, 2, 11}, {8, 3, 15}, {12, 5, 40}, {3, 40, 60}});
  }
}

TEST(EnginePackedWide, WideGradients) {
  for (std::string text : {testing::program_text("packed_gru"), testing::program_text("packed_lstm")}) {
    for (int gates : {4, 3, 2, 1})
      text = std::regex_replace(text, std::regex(fmt::format(R"(\b{}\b)", 16 * gates)), std::to_string(128 * gates));
    text = std::regex_replace(text, std::regex("f32\\["), "f64[");
    ir::Program program = ir::parse(text);
    compare(ir::print(passes::vjp_of_primals(program, testing::floating_inputs(program))), 1e-9,
            {{9, 1, 9}, {7, 2, 11}, {8, 3, 15}, {12, 5, 40}});
  }
}

/// The number of steps of a share's rows.
int64_t steps_of(const std::vector<int64_t>& sizes, runtime::Share share) {
  int64_t steps = 0;
  for (int64_t size : sizes) steps += std::max<int64_t>(0, std::min(size, share.last) - share.first);
  return steps;
}

TEST(ShareOfSteps, DealsOutStepsEvenly) {
  std::vector<int64_t> sizes;
  for (int64_t t = 0; t < 100; ++t) sizes.push_back(100 - t);
  for (int64_t threads : {1, 2, 3, 7, 150}) {
    int64_t next = 0;
    for (int64_t thread = 0; thread < threads; ++thread) {
      runtime::Share share = runtime::share_of_steps(sizes, 100, thread, threads);
      EXPECT_EQ(share.first, next);
      next = share.last;
      EXPECT_LE(std::abs(steps_of(sizes, share) - 5050 / threads), 101) << thread << " of " << threads;
    }
    EXPECT_EQ(next, 100);
  }
}

}  // namespace
}  // namespace weft::engine_packed_test
