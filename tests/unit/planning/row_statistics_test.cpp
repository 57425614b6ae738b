// Steps that normalise their rows: threads split the rows although statistics are reshaped, and the sums over rows and
// steps of their gradients are what the interpreter computes, in f32 also where values have 16 bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "lowered.h"
#include "native_run.h"
#include "random_program.h"

namespace weft::row_statistics_test {
namespace {

/// h' = tanh(x + norm(h w) * gain), as torch.nn.functional.layer_norm is decomposed; `units` wide.
std::string normalised(int64_t units) {
  std::string text = R"(program @p(%h0: f32[B,N], %x: f32[T,B,N], %w: f32[N,N], %gain: f32[N]) {
    %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
      %p = matmul %h, %w {transpose_b = true} : f32[B,N]
      %n = constant {value = WIDTH} : f32[B,1]
      %eps = constant {value = 0.01} : f32[B,1]
      %s = reduce_sum %p {dims = [1]} : f32[B]
      %s1 = reshape %s : f32[B,1]
      %m = div %s1, %n : f32[B,1]
      %m1 = reshape %m : f32[B]
      %mb = broadcast %m1 {dims = [0]} : f32[B,N]
      %c = sub %p, %mb : f32[B,N]
      %q = mul %c, %c : f32[B,N]
      %v = reduce_sum %q {dims = [1]} : f32[B]
      %v1 = reshape %v : f32[B,1]
      %d = div %v1, %n : f32[B,1]
      %e = add %d, %eps : f32[B,1]
      %r = rsqrt %e : f32[B,1]
      %r1 = reshape %r : f32[B]
      %rb = broadcast %r1 {dims = [0]} : f32[B,N]
      %y = mul %c, %rb : f32[B,N]
      %gb = broadcast %gain {dims = [1]} : f32[B,N]
      %z = mul %y, %gb : f32[B,N]
      %a = add %z, %xt : f32[B,N]
      %h2 = tanh %a : f32[B,N]
      yield carry(%h2) ys(%h2)
    } : f32[B,N], f32[T,B,N]
    return %ys, %hT })";
  auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("[N,N]", fmt::format("[{0},{0}]", units));
  replace(",N]", fmt::format(",{}]", units));
  replace("[N]", fmt::format("[{}]", units));
  replace("WIDTH", fmt::format("{}.0", units));
  return text;
}

class EngineRowSums : public ::testing::Test {
 protected:
  ~EngineRowSums() override { mutable_settings().share_all = mutable_settings().guard = false; }

  /// Machine code against the interpreter, for few rows and steps, on one thread and more than there are cores.
  static void expect_same(const std::string& text) {
    const ir::Program program = ir::parse(text);
    for (int64_t batch : {0, 1, 3, 11})
      for (int64_t length : {0, 1, 2, 5}) {
        const ir::Bindings bindings{{"T", length}, {"B", batch}};
        const auto inputs = testing::random_inputs(program, bindings, 5);
        const auto expected = interpreter::evaluate(program, inputs);
        for (int64_t threads : {1, 5}) {
          mutable_settings().share_all = threads > 1;
          mutable_settings().guard = length == 2;
          const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
          EXPECT_LE(testing::difference(found, expected), 1e-4)
              << "T " << length << ", B " << batch << ", " << threads << " threads";
        }
      }
  }
};

class RowStatistics : public EngineRowSums, public ::testing::WithParamInterface<int64_t> {};

TEST_P(RowStatistics, AreThoseOfTheInterpreter) { expect_same(normalised(GetParam())); }

TEST_P(RowStatistics, LetThreadsSplitTheRows) {
  const testing::Lowered lowered(normalised(GetParam()));
  const auto scan = std::ranges::find(lowered.program.body.ops, ir::OpCode::kScan, &ir::Op::code);
  ASSERT_NE(scan, lowered.program.body.ops.end());
  EXPECT_TRUE(lowered.schedule.rules.decision(*scan).batched);
}

INSTANTIATE_TEST_SUITE_P(Engine, RowStatistics, ::testing::Values(1, 7, 16, 33, 48));

/// Sums over rows and steps of a value that is no stack: %v of the type, joined from two sums.
std::string summed(const std::string& type) {
  std::string text = R"(program @p(%h0: TYPE[B,19], %x: TYPE[T,B,19], %s0: TYPE[19], %t0: TYPE[B]) {
    %hT, %s, %t, %ys = scan reverse length T carry(%h = %h0, %a = %s0, %b = %t0) xs(%xt = %x) {
      %k = constant {value = 0.5} : TYPE[B,19]
      %l = mul %h, %k : TYPE[B,19]
      %h2 = add %l, %xt : TYPE[B,19]
      %v = mul %h2, %l : TYPE[B,19]
      %r = reduce_sum %v {dims = [0]} : TYPE[19]
      %a2 = sub %a, %r : TYPE[19]
      %q = reduce_sum %v {dims = [1]} : TYPE[B]
      %b2 = add %b, %q : TYPE[B]
      yield carry(%h2, %a2, %b2) ys(%h2)
    } : TYPE[B,19], TYPE[19], TYPE[B], TYPE[T,B,19]
    return %hT, %s, %t, %ys })";
  for (size_t at = 0; (at = text.find("TYPE", at)) != std::string::npos; at += type.size()) text.replace(at, 4, type);
  return text;
}

TEST_F(EngineRowSums, AreCarriedByRows) {
  expect_same(summed("f32"));
  const testing::Lowered lowered(summed("f32"));
  const auto scan = std::ranges::find(lowered.program.body.ops, ir::OpCode::kScan, &ir::Op::code);
  ASSERT_NE(scan, lowered.program.body.ops.end());
  EXPECT_TRUE(lowered.schedule.rules.decision(*scan).batched);
  EXPECT_EQ(ir::ScanView(*scan).y_outs.size(), 1U) << "a stack for a sum";
}

TEST_F(EngineRowSums, OfHalvesAreOfF32) {
  // 600 steps of ones: a sum in bf16 would stay at 256.
  const std::string text = R"(program @p(%h0: bf16[B,3], %x: bf16[T,B,3], %s0: bf16[3]) {
    %hT, %s = scan length T carry(%h = %h0, %a = %s0) xs(%xt = %x) {
      %h2 = maximum %h, %xt : bf16[B,3]
      %e = sub %h2, %h2 : bf16[B,3]
      %v = exp %e : bf16[B,3]
      %r = reduce_sum %v {dims = [0]} : bf16[3]
      %a2 = add %a, %r : bf16[3]
      yield carry(%h2, %a2) ys()
    } : bf16[B,3], bf16[3]
    %z = cast %s : f32[3]
    return %z })";
  ir::Program program = ir::parse(text);
  auto inputs = testing::random_inputs(program, {{"T", 600}, {"B", 1}}, 5);
  inputs[2] = interpreter::Array(DType::kBF16, {3});
  const std::string_view passes[] = {"sink"};
  passes::run_passes(program, passes);
  for (double sum : interpreter::evaluate(program, inputs)[0].to_doubles()) EXPECT_NEAR(sum, 600, 4);
}

}  // namespace
}  // namespace weft::row_statistics_test
