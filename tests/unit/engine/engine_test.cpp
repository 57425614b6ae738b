#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "base/settings.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"

namespace weft::engine_test {
namespace {

using interpreter::Array;
using testing::run_native;

std::string program_file(const std::string& name) {
  std::ifstream file(std::string(WEFT_PROGRAMS "/") + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Array> random_inputs(const ir::Program& program, const ir::Bindings& bindings, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Array> inputs;
  for (ir::ValueId arg : program.body.args) {
    const ir::Type& type = program.type(arg);
    auto sizes = interpreter::sizes_of(type.shape, bindings);
    // Scaled by the width, as weights are: a recurrence with large weights is chaotic, so that nothing could be
    // compared.
    double width = sizes.empty() ? 1 : std::max<double>(8, static_cast<double>(sizes.back()));
    std::normal_distribution<double> normal(0, std::sqrt(2 / width));
    std::vector<double> values(static_cast<size_t>(interpreter::count_of(sizes)));
    for (double& v : values)
      v = is_floating(type.dtype) ? normal(random) : (type.dtype == DType::kBool ? random() % 2 : random() % 3);
    inputs.push_back(Array::of(type.dtype, sizes, values));
  }
  return inputs;
}

/// Largest difference relative to the largest reference value of each output.
void expect_close(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    auto a = got[i].to_doubles(), b = want[i].to_doubles();
    ASSERT_EQ(a.size(), b.size());
    double scale = 1e-6;
    for (double v : b)
      if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
    for (size_t j = 0; j < a.size(); ++j) {
      bool same = (std::isnan(a[j]) && std::isnan(b[j])) || a[j] == b[j] || std::abs(a[j] - b[j]) <= tolerance * scale;
      ASSERT_TRUE(same) << what << ": output " << i << " element " << j << ": " << a[j] << " instead of " << b[j];
    }
  }
}

/// Machine code against the interpreter, alone and with two and three threads.
void compare(const std::string& text, const ir::Bindings& bindings, double tolerance = 2e-5) {
  ir::Program program = ir::parse(text);
  auto inputs = random_inputs(program, bindings, 7);
  auto want = interpreter::evaluate(program, inputs);
  runtime::SerialTeam serial;
  std::string what = program.name;
  for (const auto& [symbol, value] : bindings) what += " " + symbol + "=" + std::to_string(value);
  expect_close(run_native(text, inputs, bindings, serial), want, tolerance, what + " serial");
  expect_close(run_native(text, inputs, bindings, runtime::own_team(2)), want, tolerance, what + " two threads");
}

constexpr ir::Bindings::mapped_type kLengths[] = {0, 1, 2, 5};
constexpr ir::Bindings::mapped_type kBatches[] = {0, 1, 3, 9, 33};

class Cells : public ::testing::TestWithParam<const char*> {};

TEST_P(Cells, ForwardEqualsInterpreter) {
  for (auto t : kLengths)
    for (auto b : kBatches) compare(program_file(GetParam()), {{"T", t}, {"B", b}});
}

TEST_P(Cells, BackwardEqualsInterpreter) {
  ir::Program program = ir::parse(program_file(GetParam()));
  std::vector<bool> wanted(program.body.args.size(), true);
  std::string primals = ir::print(passes::vjp_of_primals(program, wanted));
  for (auto t : kLengths)
    for (auto b : kBatches) compare(primals, {{"T", t}, {"B", b}}, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, Cells, ::testing::Values("gru.weft", "lstm.weft", "rnn_tanh.weft", "lngru.weft"));

TEST(Engine, OddWidthsWithManyThreads) {
  std::string text = R"(program @odd(%x: f32[T,B,5], %h0: f32[B,37], %w: f32[37,37], %v: f32[5,37]) {
    %h, %ys = scan length T carry(%c = %h0) xs(%xt = %x) {
      %a = matmul %c, %w : f32[B,37]
      %b = matmul %xt, %v : f32[B,37]
      %s = add %a, %b : f32[B,37]
      %n = tanh %s : f32[B,37]
      yield carry(%n) ys(%s)
    } : f32[B,37], f32[T,B,37]
    return %ys, %h
  })";
  for (auto b : kBatches) compare(text, {{"T", 6}, {"B", b}});
}

TEST(Engine, WideUnitSplitIsRight) {
  std::string text = R"(program @wide(%h0: f32[B,128], %w: f32[384,128], %u: f32[128,128], %x: f32[T,B,384]) {
    %h, %ys = scan reverse length T carry(%c = %h0) xs(%xt = %x) {
      %g = matmul %c, %w {transpose_b = true} : f32[B,384]
      %s = add %g, %xt : f32[B,384]
      %r = slice %s {dim = 1, start = 0, limit = 128} : f32[B,128]
      %z = slice %s {dim = 1, start = 128, limit = 256} : f32[B,128]
      %n = slice %s {dim = 1, start = 256, limit = 384} : f32[B,128]
      %rs = sigmoid %r : f32[B,128]
      %zs = sigmoid %z : f32[B,128]
      %rc = mul %rs, %c : f32[B,128]
      %p = matmul %rc, %u : f32[B,128]
      %q = add %p, %n : f32[B,128]
      %t = tanh %q : f32[B,128]
      %d = sub %c, %t : f32[B,128]
      %m = mul %zs, %d : f32[B,128]
      %o = add %t, %m : f32[B,128]
      yield carry(%o) ys(%o)
    } : f32[B,128], f32[T,B,128]
    return %ys, %h
  })";
  for (auto b : kBatches) compare(text, {{"T", 9}, {"B", b}});
}

TEST(Engine, RowsOfManyShapes) {
  compare(R"(program @rows(%x: f32[T,B,7], %y: f32[B,7], %z: f32[7], %s: f32[T,B]) {
    %yb = broadcast %y {dims = [1, 2]} : f32[T,B,7]
    %zb = broadcast %z {dims = [2]} : f32[T,B,7]
    %sb = broadcast %s {dims = [0, 1]} : f32[T,B,7]
    %a = add %x, %yb : f32[T,B,7]
    %b = mul %a, %zb : f32[T,B,7]
    %c = sub %b, %sb : f32[T,B,7]
    %m = reduce_max %c {dims = [2]} : f32[T,B]
    %mb = broadcast %m {dims = [0, 1]} : f32[T,B,7]
    %d = sub %c, %mb : f32[T,B,7]
    %e = exp %d : f32[T,B,7]
    %t = reduce_sum %e {dims = [2]} : f32[T,B]
    %l = log %t : f32[T,B]
    %u = reduce_sum %e {dims = [0, 1]} : f32[7]
    %all = reduce_sum %c {dims = [0, 1, 2]} : f32[]
    return %e, %l, %u, %all
  })",
          {{"T", 4}, {"B", 5}});
}

TEST(Engine, DoublePrecision) {
  std::string text = program_file("gru.weft");
  size_t at = 0;
  while ((at = text.find("f32", at)) != std::string::npos) text.replace(at, 3, "f64");
  for (auto b : kBatches) compare(text, {{"T", 5}, {"B", b}}, 1e-12);
}

/// A product's panels decide the width of vectors in its stage, whatever types the other ops of the stage compute in.
TEST(Engine, ProductsBesideOpsOfAnotherWidth) {
  for (int64_t columns : {5, 16, 40})
    compare(fmt::format(R"(program @wide(%x: f32[B,6], %w: f32[6,{0}], %u: f64[B,6], %v: f64[6,{0}]) {{
      %y = matmul %x, %w : f32[B,{0}]
      %d = cast %y : f64[B,{0}]
      %z = matmul %u, %v : f64[B,{0}]
      %s = add %d, %z : f64[B,{0}]
      %t = tanh %d : f64[B,{0}]
      %n = cast %z : f32[B,{0}]
      %m = mul %y, %n : f32[B,{0}]
      return %s, %t, %m }})",
                        columns),
            {{"B", 7}});
}

TEST(Engine, SameBitsEveryTime) {
  std::string text = program_file("gru.weft");
  ir::Bindings bindings{{"T", 8}, {"B", 24}};
  auto inputs = random_inputs(ir::parse(text), bindings, 3);
  auto first = run_native(text, inputs, bindings, runtime::own_team(2));
  for (int i = 0; i < 20; ++i) {
    auto again = run_native(text, inputs, bindings, runtime::own_team(2));
    for (size_t k = 0; k < first.size(); ++k) ASSERT_EQ(first[k].bytes, again[k].bytes);
  }
}

TEST(Engine, RefusesInputsThatDoNotFit) {
  std::string text = program_file("gru.weft");
  auto inputs = random_inputs(ir::parse(text), {{"T", 3}, {"B", 2}}, 1);
  inputs[1] = Array(DType::kF32, {3, 16});
  runtime::SerialTeam serial;
  try {
    run_native(text, inputs, {{"T", 3}, {"B", 2}}, serial);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("h0"), std::string::npos) << error.what();
  }
}

TEST(Engine, OutOfRangeIndexIsTheUsersError) {
  std::string text = "program @g(%w: f32[4,3], %i: i64[N]) { %r = gather %w, %i : f32[N,3] return %r }";
  std::vector<Array> inputs{Array(DType::kF32, {4, 3}), Array::of(DType::kI64, {2}, std::vector<double>{1, 4})};
  EXPECT_THROW(run_native(text, inputs, {{"N", 2}}, runtime::own_team(2)), Error);
}

TEST(Engine, JoinsAndPadsColumnsInALoop) {
  std::string text = R"(program @joined(%x: f32[T,B,3], %h0: f32[B,21], %w: f32[21,24]) {
    %h, %ys, %ps = scan length T carry(%c = %h0) xs(%xt = %x) {
      %j = concat %xt, %c {dim = 1} : f32[B,24]
      %m = matmul %j, %w {transpose_b = true} : f32[B,21]
      %t = tanh %m : f32[B,21]
      %s = slice %t {dim = 1, start = 2, limit = 20} : f32[B,18]
      %e = exp %s : f32[B,18]
      %p = pad %e {dim = 1, low = 2, high = 1} : f32[B,21]
      %d = sub %t, %p : f32[B,21]
      %u = tanh %d : f32[B,21]
      yield carry(%u) ys(%j, %p)
    } : f32[B,21], f32[T,B,24], f32[T,B,21]
    return %ys, %ps, %h
  })";
  int64_t before = testing::fallbacks();
  for (auto b : kBatches) compare(text, {{"T", 4}, {"B", b}});
  EXPECT_EQ(testing::fallbacks(), before);
}

// Compile time is bought with instructions (DESIGN.md, rule 10).
TEST(Engine, GruForwardAndBackwardStayUnderTheInstructionBudget) {
  std::string cache = std::exchange(mutable_settings().cache_dir, "");
  ir::Program program = ir::parse(program_file("gru.weft"));
  program.name = "gru_counted";
  passes::Vjp vjp = passes::vjp(program, std::vector<bool>(program.body.args.size(), true));
  int64_t before = engine::stats().instructions;
  engine::compile(ir::print(vjp.forward));
  engine::compile(ir::print(vjp.backward));
  mutable_settings().cache_dir = cache;
  int64_t count = engine::stats().instructions - before;
  std::printf("%lld instructions\n", static_cast<long long>(count));
  EXPECT_GT(count, 100);
  EXPECT_LT(count, 1200);
}

TEST(Engine, PlanPrintsThePeak) {
  auto executable = engine::compile(program_file("gru.weft"));
  EXPECT_NE(executable->plan({{"T", 10}, {"B", 4}}).find("peak "), std::string::npos);
}

}  // namespace
}  // namespace weft::engine_test
