// Reductions over the dim before the last one, inside scans: done where their elements are computed, by machine code,
// with what the interpreter computes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "lowered.h"
#include "native_run.h"
#include "random_program.h"

namespace weft::row_reductions_test {
namespace {

std::string with(std::string text, const std::vector<std::pair<std::string, std::string>>& words) {
  for (const auto& [from, to] : words)
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  return text;
}

/// A carry for each column of R rows: the sum and the largest of its element plus the rows' weights, and a sum over the
/// columns of the same elements. Both results are read again at the next step.
std::string joined(const std::string& type, int64_t rows, int64_t columns) {
  const std::string text = R"(program @p(%h0: TYPE[B,COLS], %x: TYPE[T,B,ROWS], %w: TYPE[ROWS,COLS]) {
    %hT, %ys, %zs, %qs = scan length T carry(%h = %h0) xs(%xt = %x) {
      %hb = broadcast %h {dims = [0, 2]} : TYPE[B,ROWS,COLS]
      %xb = broadcast %xt {dims = [0, 1]} : TYPE[B,ROWS,COLS]
      %wb = broadcast %w {dims = [1, 2]} : TYPE[B,ROWS,COLS]
      %a = mul %xb, %wb : TYPE[B,ROWS,COLS]
      %b = maximum %a, %hb : TYPE[B,ROWS,COLS]
      %m = reduce_max %b {dims = [1]} : TYPE[B,COLS]
      %s = reduce_sum %a {dims = [1]} : TYPE[B,COLS]
      %c = reduce_sum %a {dims = [2]} : TYPE[B,ROWS]
      %m2 = sub %m, %s : TYPE[B,COLS]
      yield carry(%m2) ys(%m, %s, %c)
    } : TYPE[B,COLS], TYPE[T,B,COLS], TYPE[T,B,COLS], TYPE[T,B,ROWS]
    return %ys, %hT, %zs, %qs })";
  return with(text, {{"TYPE", type}, {"ROWS", std::to_string(rows)}, {"COLS", std::to_string(columns)}});
}

/// A step without a batch: what is reduced is a matrix.
std::string of_matrices(int64_t rows, int64_t columns) {
  const std::string text = R"(program @p(%h0: f32[COLS], %x: f32[T,ROWS], %w: f32[ROWS,COLS]) {
    %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
      %hb = broadcast %h {dims = [1]} : f32[ROWS,COLS]
      %xb = broadcast %xt {dims = [0]} : f32[ROWS,COLS]
      %a = add %hb, %w : f32[ROWS,COLS]
      %t = tanh %a : f32[ROWS,COLS]
      %b = mul %t, %xb : f32[ROWS,COLS]
      %s = reduce_sum %b {dims = [0]} : f32[COLS]
      yield carry(%s) ys(%s)
    } : f32[COLS], f32[T,COLS]
    return %ys, %hT })";
  return with(text, {{"ROWS", std::to_string(rows)}, {"COLS", std::to_string(columns)}});
}

class EngineRowReductions : public ::testing::Test {
 protected:
  ~EngineRowReductions() override { mutable_settings().share_all = mutable_settings().guard = false; }

  static void expect_same(const std::string& text, double tolerance) {
    const ir::Program program = ir::parse(text);
    for (int64_t batch : {0, 1, 5})
      for (int64_t length : {0, 1, 4}) {
        const ir::Bindings bindings{{"T", length}, {"B", batch}};
        const auto inputs = testing::random_inputs(program, bindings, 5);
        const auto expected = interpreter::evaluate(program, inputs);
        for (int64_t threads : {1, 3}) {
          mutable_settings().share_all = threads > 1;
          mutable_settings().guard = length == 4;
          const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
          EXPECT_LE(testing::difference(found, expected), tolerance)
              << text << "T " << length << ", B " << batch << ", " << threads << " threads";
        }
      }
  }

  static bool is_one_function(const std::string& text) {
    const testing::Lowered lowered(text);
    const auto scan = std::ranges::find(lowered.program.body.ops, ir::OpCode::kScan, &ir::Op::code);
    return lowered.schedule.rules.decision(*scan).lowering == planning::Lowering::kScan;
  }
};

TEST_F(EngineRowReductions, AreThoseOfTheInterpreter) {
  for (int64_t columns : {1, 7, 16, 33, 64, 128})
    for (int64_t rows : {1, 2, 5, 64}) expect_same(joined("f32", rows, columns), 1e-4);
}

TEST_F(EngineRowReductions, OfOtherTypes) {
  for (int64_t columns : {3, 32}) {
    expect_same(joined("f64", 6, columns), 1e-12);
    expect_same(joined("i32", 6, columns), 0);
    expect_same(joined("i64", 6, columns), 0);
    expect_same(joined("bf16", 6, columns), 0.1);
    expect_same(joined("f16", 6, columns), 0.02);
  }
}

TEST_F(EngineRowReductions, OfMatrices) {
  for (int64_t columns : {1, 16, 40}) expect_same(of_matrices(9, columns), 1e-4);
}

TEST_F(EngineRowReductions, ArePartOfTheScansFunction) {
  EXPECT_TRUE(is_one_function(joined("f32", 64, 64)));
  EXPECT_TRUE(is_one_function(of_matrices(9, 40)));
  EXPECT_FALSE(is_one_function(joined("f32", 1000, 16))) << "long sums are calls, which bound their error";
}

TEST_F(EngineRowReductions, NaNsAndInfinitiesAreReduced) {
  const std::string text = joined("f32", 3, 16);
  const ir::Program program = ir::parse(text);
  const ir::Bindings bindings{{"T", 1}, {"B", 1}};
  auto inputs = testing::random_inputs(program, bindings, 5);
  std::vector<double> weights(48, -INFINITY);
  weights[17] = NAN;  // of one column alone
  weights[18] = INFINITY;
  inputs[1] = interpreter::Array::of(DType::kF32, {1, 1, 3}, std::vector<double>(3, 1.0));
  inputs[2] = interpreter::Array::of(DType::kF32, {3, 16}, weights);
  const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(1));
  const auto expected = interpreter::evaluate(program, inputs);
  for (size_t i = 0; i < found.size(); ++i) {
    const auto a = found[i].to_doubles(), b = expected[i].to_doubles();
    for (size_t j = 0; j < a.size(); ++j) EXPECT_TRUE(a[j] == b[j] || (a[j] != a[j] && b[j] != b[j])) << i << ", " << j;
  }
}

}  // namespace
}  // namespace weft::row_reductions_test
