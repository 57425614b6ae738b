// The interpreter against values worked out by hand, and the meaning of ops for NaN, overflow, empty dims, T = 0,
// reverse.

#include "interpreter/interpreter.h"

#include <cmath>
#include <limits>

#include "interpreter/numeric.h"
#include "ir/text/parser.h"
#include "programs.h"
#include "random_program.h"

namespace weft::interpreter_test {
namespace {

using interpreter::Array;
using testing::error_of;
using Values = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Array f32(std::vector<int64_t> sizes, Values values) { return Array::of(DType::kF32, std::move(sizes), values); }
Array i64(std::vector<int64_t> sizes, Values values) { return Array::of(DType::kI64, std::move(sizes), values); }
Array boolean(std::vector<int64_t> sizes, Values values) { return Array::of(DType::kBool, std::move(sizes), values); }

std::vector<Array> run(const std::string& text, const std::vector<Array>& inputs) {
  return interpreter::evaluate(ir::parse(text), inputs);
}

/// The values of `op`, whose operands %a, %b, %c have the arrays' types.
Values run_op(const std::string& op, const std::vector<Array>& inputs) {
  std::string text = "program @p(";
  for (size_t i = 0; i < inputs.size(); ++i)
    text += fmt::format("{}%{}: {}[{}]", i ? ", " : "", "abc"[i], name_of(inputs[i].dtype),
                        fmt::join(inputs[i].sizes, ","));
  return run(text + ") { %r = " + op + " return %r }", inputs)[0].to_doubles();
}

/// Equal, with NaN equal to NaN and -0 different from 0.
void expect_same(const Values& found, const Values& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(found[i])) << "element " << i << " is " << found[i];
    else
      EXPECT_TRUE(found[i] == expected[i] && std::signbit(found[i]) == std::signbit(expected[i]))
          << "element " << i << " is " << found[i] << ", not " << expected[i];
  }
}

TEST(Interpreter, NaNAndInfinity) {
  Array a = f32({4}, {kNaN, 1, -kInf, -2});
  Array b = f32({4}, {1, kNaN, 3, -3});
  expect_same(run_op("maximum %a, %b", {a, b}), {kNaN, kNaN, 3, -2});
  expect_same(run_op("minimum %a, %b", {a, b}), {kNaN, kNaN, -kInf, -3});
  expect_same(run_op("relu %a", {a}), {kNaN, 1, 0, 0});
  expect_same(run_op("lt %a, %b", {a, b}), {0, 0, 1, 0});
  expect_same(run_op("ne %a, %a", {a}), {1, 0, 0, 0});
  expect_same(run_op("sigmoid %a", {f32({3}, {-kInf, kInf, -200})}), {0, 1, 0});
  expect_same(run_op("tanh %a", {f32({3}, {-kInf, kInf, kNaN})}), {-1, 1, kNaN});
  expect_same(run_op("reduce_max %a {dims = [0]}", {a}), {kNaN});
  expect_same(run_op("reduce_max %a {dims = [0]}", {b}), {kNaN});
  expect_same(run_op("log %a", {f32({3}, {0, -1, 1})}), {-kInf, kNaN, 0});
}

TEST(Interpreter, IntegersWrapAndTruncate) {
  auto i8 = [](Values values) { return Array::of(DType::kI8, {static_cast<int64_t>(values.size())}, values); };
  expect_same(run_op("add %a, %b", {i8({127, -128}), i8({1, -1})}), {-128, 127});
  expect_same(run_op("mul %a, %b", {i8({100, -7}), i8({3, 5})}), {44, -35});
  expect_same(run_op("div %a, %b", {i8({-7, 7, -128}), i8({2, -2, -1})}), {-3, -3, -128});
  expect_same(run_op("abs %a", {i8({-128, -5})}), {-128, 5});
  expect_same(run_op("neg %a", {i8({-128, 5})}), {-128, -5});
  EXPECT_EQ(error_of([&] { run_op("div %a, %b", {i8({1}), i8({0})}); }), "div: integer division by zero");
  expect_same(run_op("reduce_max %a {dims = [0]}", {i8({})}), {-128});
}

TEST(Interpreter, RestsAndBits) {
  expect_same(run_op("rem %a, %b", {i64({4}, {-7, 7, -7, 5}), i64({4}, {2, -2, -1, 5})}), {-1, 1, 0, 0});
  expect_same(run_op("rem %a, %b", {f32({4}, {-7.5, 7.5, 1, kInf}), f32({4}, {2, -2, 0, 3})}), {-1.5, 1.5, kNaN, kNaN});
  EXPECT_EQ(error_of([&] { run_op("rem %a, %b", {i64({1}, {1}), i64({1}, {0})}); }), "rem: integer division by zero");
  Array a = i64({3}, {12, -1, 5}), b = i64({3}, {10, 6, 0});
  expect_same(run_op("and %a, %b", {a, b}), {8, 6, 0});
  expect_same(run_op("or %a, %b", {a, b}), {14, -1, 5});
  expect_same(run_op("not %a", {a}), {-13, 0, -6});
}

TEST(Interpreter, Rounding) {
  Array a = f32({7}, {-2.5, -1.5, -0.5, 0.5, 1.5, 8388609, kNaN});
  expect_same(run_op("round %a", {a}), {-2, -2, -0.0, 0, 2, 8388609, kNaN});
  expect_same(run_op("ceil %a", {a}), {-2, -1, -0.0, 1, 2, 8388609, kNaN});
  expect_same(run_op("trunc %a", {a}), {-2, -1, -0.0, 0, 1, 8388609, kNaN});
}

TEST(Interpreter, ScatterKeepsTheLastOfEqualIndices) {
  Array table = f32({3, 2}, {1, 2, 3, 4, 5, 6}), updates = f32({3, 2}, {10, 20, 30, 40, 50, 60});
  expect_same(run_op("scatter %a, %b, %c", {table, i64({3}, {2, 0, 2}), updates}), {30, 40, 3, 4, 50, 60});
  EXPECT_EQ(error_of([&] { run_op("scatter %a, %b, %c", {table, i64({3}, {2, 0, 3}), updates}); }),
            "scatter: index 3 is outside 0..2");
}

TEST(Interpreter, RowsFromAPlaceOn) {
  Array x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  auto at = [](double start) { return i64({}, {start}); };
  expect_same(run_op("dynamic_slice %a, %b {dim = 1, size = 2}", {x, at(1)}), {2, 3, 5, 6});
  expect_same(run_op("dynamic_slice %a, %b {dim = 0, size = 1}", {x, at(1)}), {4, 5, 6});
  expect_same(run_op("dynamic_slice %a, %b {dim = 0, size = 0}", {x, at(2)}), {});
  Array update = f32({2, 1}, {10, 20});
  expect_same(run_op("dynamic_update %a, %b, %c {dim = 1}", {x, update, at(0)}), {10, 2, 3, 20, 5, 6});
  expect_same(run_op("dynamic_update %a, %b, %c {dim = 1}", {x, update, at(2)}), {1, 2, 10, 4, 5, 20});
  expect_same(run_op("dynamic_update %a, %b, %c {dim = 0}", {x, f32({0, 3}, {}), at(2)}), {1, 2, 3, 4, 5, 6});
  for (double bad : {2.0, -1.0}) {
    EXPECT_EQ(
        error_of([&] { run_op("dynamic_slice %a, %b {dim = 1, size = 2}", {x, at(bad)}); }),
        fmt::format("dynamic_slice: start {} is out of bounds for dimension 1 with size 3: 2 rows begin at 0..1", bad));
  }
  EXPECT_EQ(error_of([&] { run_op("dynamic_update %a, %b, %c {dim = 1}", {x, update, at(3)}); }),
            "dynamic_update: start 3 is out of bounds for dimension 1 with size 3: 1 rows begin at 0..2");
}

TEST(Interpreter, MoreRowsThanThereAre) {
  std::string text = "program @p(%x: f32[T], %s: i64[]) { %y = dynamic_slice %x, %s {dim = 0, size = 3} return %y }";
  EXPECT_EQ(error_of([&] { run(text, {f32({2}, {1, 2}), i64({}, {0})}); }),
            "dynamic_slice: dimension 0 has 2 rows, fewer than 3");
}

TEST(Interpreter, SizeIsTheDimAtTheCall) {
  std::string text = "program @p(%x: f32[T,B]) { %n = size {of = dim(2*T*B)} : i64[] return %n }";
  expect_same(run(text, {f32({3, 5}, Values(15))})[0].to_doubles(), {30});
}

TEST(Interpreter, Casts) {
  Array a = f32({6}, {-1.9, 1.9, kNaN, kInf, -kInf, 300});
  expect_same(run_op("cast %a : i8[6]", {a}), {-1, 1, 0, 127, -128, 127});
  expect_same(run_op("cast %a : u8[6]", {a}), {0, 1, 0, 255, 0, 255});
  expect_same(run_op("cast %a : bool[6]", {a}), {1, 1, 1, 1, 1, 1});
  expect_same(run_op("cast %a : i8[2]", {i64({2}, {130, -129})}), {-126, 127});
  expect_same(run_op("cast %a : f16[5]", {f32({5}, {65520, 65519, 1e-8, -0.0, 2049})}), {kInf, 65504, 0, -0.0, 2048});
  expect_same(run_op("cast %a : bf16[3]", {f32({3}, {257, 259, 3.4e38})}), {256, 260, kInf});
  expect_same(run_op("cast %a : f32[2]", {boolean({2}, {0, 1})}), {0, 1});
}

TEST(Interpreter, HalfConvertsExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = interpreter::float_from_half(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(interpreter::half_from_float(value), bits);
    // Tries numbers at, just below and just above the middle between this number and the next.
    float next = interpreter::float_from_half(static_cast<uint16_t>(bits + 1));
    if ((bits & 0x7fff) >= 0x7bff) continue;
    float middle = value + (next - value) / 2;
    EXPECT_EQ(interpreter::half_from_float(std::nextafter(middle, value)), bits);
    EXPECT_EQ(interpreter::half_from_float(std::nextafter(middle, next)), bits + 1);
    EXPECT_EQ(interpreter::half_from_float(middle), bits + (bits & 1));
  }
}

TEST(Interpreter, HalfTypesComputeInFloatAndRoundOnce) {
  auto bf16 = [](Values values) { return Array::of(DType::kBF16, {static_cast<int64_t>(values.size())}, values); };
  expect_same(run_op("add %a, %b", {bf16({256, 256}), bf16({1, 3})}), {256, 260});
  Values ones(1000, 1.0);
  expect_same(run_op("reduce_sum %a {dims = [0]}", {bf16(ones)}), {1000});  // bf16 sums would stop at 256
}

TEST(Interpreter, FloatProductsAccumulateInDouble) {
  Array a = f32({1, 3}, {1e8, 1, -1e8});
  expect_same(run_op("matmul %a, %b", {a, f32({3, 1}, {1, 1, 1})}), {1});
}

TEST(Interpreter, Movement) {
  Array a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_same(run_op("transpose %a {perm = [1, 0]}", {a}), {1, 4, 2, 5, 3, 6});
  expect_same(run_op("broadcast %a {dims = [0, 2]} : f32[2,2,3]", {a}), {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  expect_same(run_op("slice %a {dim = 1, limit = 3, start = 1}", {a}), {2, 3, 5, 6});
  expect_same(run_op("pad %a {dim = 1, high = 0, low = 1}", {a}), {0, 1, 2, 3, 0, 4, 5, 6});
  expect_same(run_op("pad %a {dim = 0, high = 1, low = 0}", {a}), {1, 2, 3, 4, 5, 6, 0, 0, 0});
  expect_same(run_op("concat %a, %a {dim = 1}", {a}), {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  expect_same(run_op("concat %a, %a {dim = 0}", {a}), {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  expect_same(run_op("reverse %a {dim = 1}", {a}), {3, 2, 1, 6, 5, 4});
  expect_same(run_op("reverse %a {dim = 0}", {a}), {4, 5, 6, 1, 2, 3});
  expect_same(run_op("reshape %a : f32[3,2]", {a}), {1, 2, 3, 4, 5, 6});
  expect_same(run_op("iota {dim = 0} : f32[2,3]", {}), {0, 0, 0, 1, 1, 1});
  expect_same(run_op("iota {dim = 1} : i64[2,3]", {}), {0, 1, 2, 0, 1, 2});
}

TEST(Interpreter, GatherAndScatter) {
  Array table = f32({3, 2}, {1, 2, 3, 4, 5, 6});
  Array index = i64({4}, {2, 0, 2, 1});
  expect_same(run_op("gather %a, %b", {table, index}), {5, 6, 1, 2, 5, 6, 3, 4});
  Array updates = f32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  expect_same(run_op("scatter_add %a, %b : f32[4,2]", {index, updates}), {3, 4, 7, 8, 6, 8, 0, 0});
  EXPECT_EQ(error_of([&] { run_op("gather %a, %b", {table, i64({1}, {3})}); }), "gather: index 3 is outside 0..2");
  EXPECT_EQ(error_of([&] { run_op("gather %a, %b", {table, i64({1}, {-1})}); }), "gather: index -1 is outside 0..2");
  EXPECT_EQ(error_of([&] { run_op("gather %a, %b", {f32({0, 2}, {}), i64({1}, {0})}); }),
            "gather: index 0 is outside 0..-1");
}

TEST(Interpreter, Reductions) {
  Array a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_same(run_op("reduce_sum %a {dims = [0]}", {a}), {5, 7, 9});
  expect_same(run_op("reduce_sum %a {dims = [1]}", {a}), {6, 15});
  expect_same(run_op("reduce_sum %a {dims = [0, 1]}", {a}), {21});
  expect_same(run_op("reduce_max %a {dims = [1]}", {a}), {3, 6});
  expect_same(run_op("reduce_sum %a {dims = []}", {a}), {1, 2, 3, 4, 5, 6});
}

TEST(Interpreter, Products) {
  Array a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  Array b = f32({3, 2}, {1, 0, 0, 1, 1, 1});
  expect_same(run_op("matmul %a, %b", {a, b}), {4, 5, 10, 11});
  expect_same(run_op("matmul %a, %b {transpose_b = true}", {a, f32({2, 3}, {1, 0, 1, 0, 1, 1})}), {4, 5, 10, 11});
  expect_same(run_op("matmul %a, %b", {i64({1, 2}, {3, -4}), i64({2, 1}, {5, 6})}), {-9});
  expect_same(run_op("outer %a, %b", {a, f32({2, 1}, {1, 10})}), {41, 52, 63});
  Array x = f32({2, 1, 2}, {1, 2, 3, 4});
  Array y = f32({2, 2, 1}, {1, 10, 100, 1000});
  expect_same(run_op("batch_matmul %a, %b", {x, y}), {21, 4300});
  expect_same(run_op("batch_matmul %a, %b {transpose_a = true, transpose_b = true}", {x, y}),
              {1, 10, 2, 20, 300, 3000, 400, 4000});
  expect_same(run_op("batch_matmul %a, %b {transpose_b = true}", {x, x}), {5, 25});
}

TEST(Interpreter, PackedProductEqualsTheProduct) {
  std::string text =
      "program @p(%a: f64[B,5], %b: f64[5,14], %c: f64[14,5]) {\n"
      "  %p = pack %b {groups = 2, width = 4}\n"
      "  %x = matmul_packed %a, %p {groups = 2, n = 14}\n"
      "  %q = pack %c {groups = 2, transpose_b = true, width = 4}\n"
      "  %y = matmul_packed %a, %q {groups = 2, n = 14}\n"
      "  %u = matmul %a, %b\n  %v = matmul %a, %c {transpose_b = true}\n"
      "  return %x, %u, %y, %v, %p\n}";
  ir::Program program = ir::parse(text);
  std::vector<Array> results = interpreter::evaluate(program, testing::random_inputs(program, {{"B", 3}}, 7));
  expect_same(results[0].to_doubles(), results[1].to_doubles());
  expect_same(results[2].to_doubles(), results[3].to_doubles());
  EXPECT_EQ(results[4].sizes, (std::vector<int64_t>{2, 5, 8}));
}

TEST(Interpreter, ProductByBytesEqualsTheProduct) {
  std::string text =
      "program @p(%a: f32[B,5], %i: i32[B,5], %w: i8[14,5]) {\n"
      "  %x = matmul_rows %a, %w {groups = 2, width = 4}\n"
      "  %y = matmul_rows %i, %w {groups = 1, width = 16}\n"
      "  %wf = cast %w : f32[14,5]\n  %wi = cast %w : i32[14,5]\n"
      "  %u = matmul %a, %wf {transpose_b = true}\n  %v = matmul %i, %wi {transpose_b = true}\n"
      "  return %x, %u, %y, %v\n}";
  ir::Program program = ir::parse(text);
  std::vector<Array> results = interpreter::evaluate(program, testing::random_inputs(program, {{"B", 3}}, 7));
  expect_same(results[0].to_doubles(), results[1].to_doubles());
  expect_same(results[2].to_doubles(), results[3].to_doubles());
}

TEST(Interpreter, EmptyDims) {
  Array empty = f32({0, 3}, {});
  expect_same(run_op("reduce_sum %a {dims = [0]}", {empty}), {0, 0, 0});
  expect_same(run_op("reduce_max %a {dims = [0]}", {empty}), {-kInf, -kInf, -kInf});
  expect_same(run_op("matmul %a, %b", {f32({2, 0}, {}), f32({0, 2}, {})}), {0, 0, 0, 0});
  expect_same(run_op("outer %a, %b", {empty, f32({0, 1}, {})}), {0, 0, 0});
  expect_same(run_op("concat %a, %b {dim = 0}", {empty, f32({1, 3}, {1, 2, 3})}), {1, 2, 3});
  expect_same(run_op("pad %a {dim = 0, high = 1, low = 0}", {empty}), {0, 0, 0});
  expect_same(run_op("reverse %a {dim = 0}", {empty}), {});
  expect_same(run_op("transpose %a {perm = [1, 0]}", {empty}), {});
}

TEST(Interpreter, HypotOverflowsOnlyAtTheEnd) {
  std::vector<Array> results = run("program @p(%a: f32[4], %b: f32[4]) { %y = hypot %a, %b return %y }",
                                   {f32({4}, {3, -3e30f, 0, 1}), f32({4}, {4, 4e30f, 0, NAN})});
  expect_same(results[0].to_doubles(), {5, double{5e30f}, 0, NAN});
}

TEST(Interpreter, LogaddexpTakesInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<Array> results = run("program @p(%a: f32[4], %b: f32[4]) { %y = logaddexp %a, %b return %y }",
                                   {f32({4}, {inf, -inf, -inf, 200}), f32({4}, {inf, -inf, 2, -200})});
  expect_same(results[0].to_doubles(), {inf, -inf, 2, 200});
}

// ys[t] = h + x[t] and the next carries swap: tests order, capture and carries that cross.
constexpr char kScan[] =
    "program @p(%x: f32[T], %h0: f32[], %g0: f32[], %s: f32[]) {{\n"
    "  %h, %g, %ys = scan {}length T carry(%a = %h0, %b = %g0) xs(%xt = %x) {{\n"
    "    %sum = add %a, %xt\n    %scaled = mul %sum, %s\n    yield carry(%b, %scaled) ys(%sum)\n  }}\n"
    "  return %h, %g, %ys\n}}";

TEST(Interpreter, ScanRunsForwards) {
  std::vector<Array> results =
      run(fmt::format(kScan, ""), {f32({3}, {1, 2, 3}), f32({}, {10}), f32({}, {20}), f32({}, {2})});
  // (10, 20) -> (20, 22) -> (22, 44) -> (44, 50)
  expect_same(results[0].to_doubles(), {44});
  expect_same(results[1].to_doubles(), {50});
  expect_same(results[2].to_doubles(), {11, 22, 25});
}

TEST(Interpreter, ScanRunsBackwards) {
  std::vector<Array> results =
      run(fmt::format(kScan, "reverse "), {f32({3}, {1, 2, 3}), f32({}, {10}), f32({}, {20}), f32({}, {2})});
  // (10, 20) -3-> (20, 26) -2-> (26, 44) -1-> (44, 54)
  expect_same(results[0].to_doubles(), {44});
  expect_same(results[1].to_doubles(), {54});
  expect_same(results[2].to_doubles(), {27, 22, 13});
}

TEST(Interpreter, ScanOfNoSteps) {
  std::vector<Array> results = run(fmt::format(kScan, ""), {f32({0}, {}), f32({}, {10}), f32({}, {20}), f32({}, {2})});
  expect_same(results[0].to_doubles(), {10});
  expect_same(results[1].to_doubles(), {20});
  EXPECT_EQ(results[2].sizes, std::vector<int64_t>{0});
}

TEST(Interpreter, NestedScans) {
  // The inner scan sums a row, the outer one carries the sum: a running total of row sums.
  std::vector<Array> results =
      run("program @p(%x: f32[T,B], %z: f32[]) {\n"
          "  %h, %ys = scan length T carry(%a = %z) xs(%row = %x) {\n"
          "    %s = scan length B carry(%c = %a) xs(%e = %row) { %n = add %c, %e yield carry(%n) ys() }\n"
          "    yield carry(%s) ys(%s)\n  }\n  return %ys\n}",
          {f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({}, {100})});
  expect_same(results[0].to_doubles(), {106, 121});
}

/// The branch that is not taken would look outside its table.
TEST(Interpreter, CondDoesOneBranchOnly) {
  constexpr char kText[] =
      "program @p(%p: bool[], %table: f32[2], %i: i64[1], %x: f32[1]) {\n"
      "  %y, %z = cond %p then { %g = gather %table, %i : f32[1] yield %g, %x }\n"
      "    else { %n = neg %x : f32[1] yield %n, %n } : f32[1], f32[1]\n"
      "  return %y, %z\n}";
  Array no = Array::of(DType::kBool, {}, std::array{0.0});
  Array yes = Array::of(DType::kBool, {}, std::array{1.0});
  Array one = Array::of(DType::kI64, {1}, std::array{1.0});
  Array outside = Array::of(DType::kI64, {1}, std::array{7.0});
  std::vector<Array> results = run(kText, {yes, f32({2}, {3, 4}), one, f32({1}, {5})});
  expect_same(results[0].to_doubles(), {4});
  expect_same(results[1].to_doubles(), {5});
  results = run(kText, {no, f32({2}, {3, 4}), outside, f32({1}, {5})});
  expect_same(results[0].to_doubles(), {-5});
  expect_same(results[1].to_doubles(), {-5});
  EXPECT_EQ(error_of([&] { run(kText, {yes, f32({2}, {3, 4}), outside, f32({1}, {5})}); }),
            "gather: index 7 is outside 0..1");
}

/// Carries that cross, a captured limit, a scan in the body, and a condition that never holds.
TEST(Interpreter, WhileRunsUntilItsConditionFails) {
  constexpr char kText[] =
      "program @p(%x: f32[], %y: f32[], %limit: f32[], %zs: f32[T]) {\n"
      "  %a, %b = while carry(%a = %x, %b = %y) { %more = lt %a, %limit : bool[] yield %more }\n"
      "  do(%a, %b) {\n"
      "    %s = scan length T carry(%c = %a) xs(%z = %zs) { %n = add %c, %z : f32[] yield carry(%n) ys() } : f32[]\n"
      "    yield %b, %s\n  } : f32[], f32[]\n"
      "  return %a, %b\n}";
  // (1, 2) -> (2, 4) -> (4, 5) -> (5, 7): 5 is not below 5
  std::vector<Array> results = run(kText, {f32({}, {1}), f32({}, {2}), f32({}, {5}), f32({2}, {1, 2})});
  expect_same(results[0].to_doubles(), {5});
  expect_same(results[1].to_doubles(), {7});
  results = run(kText, {f32({}, {NAN}), f32({}, {2}), f32({}, {5}), f32({2}, {1, 2})});
  EXPECT_TRUE(std::isnan(results[0].to_doubles()[0]));
  expect_same(results[1].to_doubles(), {2});
}

TEST(Interpreter, GruStepAgreesWithTheFormula) {
  ir::Program program = ir::parse(testing::program_text("gru"));
  std::vector<Array> inputs = testing::random_inputs(program, {{"T", 1}, {"B", 1}}, 5);
  std::vector<Array> results = interpreter::evaluate(program, inputs);
  std::vector<Values> v;
  for (const Array& input : inputs) v.push_back(input.to_doubles());
  auto gate = [&](size_t row, size_t operand) {  // one row of W x + b
    size_t width = operand == 0 ? 8 : 16;
    double sum = v[4 + operand][row];
    for (size_t k = 0; k < width; ++k) sum += v[2 + operand][row * width + k] * v[operand][k];
    return sum;
  };
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (size_t j = 0; j < 16; ++j) {
    double r = sigmoid(gate(j, 0) + gate(j, 1));
    double z = sigmoid(gate(j + 16, 0) + gate(j + 16, 1));
    double n = std::tanh(gate(j + 32, 0) + r * gate(j + 32, 1));
    EXPECT_NEAR(results[1].to_doubles()[j], n + z * (v[1][j] - n), 1e-6);
  }
}

const char* const kRagged = R"(program @p(%x: f32[N], %sizes: i64[T], %h: f32[B], %s: f32[]) {
    %hT, %sT, %ys, %sums = scan length T ragged(%sizes, B, N) carry(%c = %h, %d = %s) xs(%xt = %x) {
      %a = add %c, %xt : f32[B]
      %r = reduce_sum %a {dims = [0]} : f32[]
      %e = add %d, %r : f32[]
      yield carry(%a, %e) ys(%a, %r)
    } : f32[B], f32[], f32[N], f32[T]
    return %hT, %sT, %ys, %sums
  })";

TEST(Interpreter, RaggedScan) {
  Array x = f32({6}, {1, 2, 3, 10, 20, 100});
  Array sizes = i64({3}, {3, 2, 1});
  Array h = f32({3}, {0.5, 0.25, 0.125});
  auto out = run(kRagged, {x, sizes, h, f32({}, {1000})});
  expect_same(out[0].to_doubles(), {111.5, 22.25, 3.125});
  expect_same(out[1].to_doubles(), {1000 + 6.875 + 33.75 + 111.5});
  expect_same(out[2].to_doubles(), {1.5, 2.25, 3.125, 11.5, 22.25, 111.5});
  expect_same(out[3].to_doubles(), {6.875, 33.75, 111.5});
  std::string text = kRagged;
  text.replace(text.find("scan length"), 11, "scan reverse length");
  out = run(text, {x, sizes, h, f32({}, {1000})});
  expect_same(out[0].to_doubles(), {111.5, 22.25, 3.125});
  expect_same(out[2].to_doubles(), {111.5, 22.25, 3.125, 110.5, 20.25, 100.5});
  expect_same(out[3].to_doubles(), {136.875, 130.75, 100.5});
}

TEST(Interpreter, BatchSizesThatDoNotFit) {
  auto error = [&](const Values& sizes, int64_t rows, int64_t packed) {
    return error_of([&] {
      run(kRagged, {Array(DType::kF32, {packed}), i64({static_cast<int64_t>(sizes.size())}, sizes),
                    Array(DType::kF32, {rows}), f32({}, {0})});
    });
  };
  EXPECT_EQ(error({3, 2}, 3, 5), "no error");
  EXPECT_EQ(error({}, 3, 0), "no error");
  EXPECT_EQ(error({3, 2}, 3, 6), "packed sequences: batch_sizes sum to 5, but the data have 6 rows");
  EXPECT_EQ(error({3, 2}, 3, 4), "packed sequences: batch_sizes sum to more than the 4 rows of data");
  EXPECT_EQ(error({3, 2}, 4, 5), "packed sequences: batch_sizes begin with 3, but there are 4 sequences");
  EXPECT_EQ(error({3, 1, 2}, 3, 6), "packed sequences: batch_sizes must not increase, but 2 follows 1 at 2");
  EXPECT_EQ(error({3, 0}, 3, 3), "packed sequences: batch_sizes[1] is 0, but must be at least 1");
  EXPECT_EQ(error({2, -1}, 2, 1), "packed sequences: batch_sizes[1] is -1, but must be at least 1");
}

TEST(Interpreter, RandomProgramsRunOnAllSizes) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    ir::Program program = testing::random_program(seed, {.scan_depth = 2});
    for (int64_t t : {0, 1, 3})
      for (int64_t b : {0, 2}) {
        ir::Bindings bindings{{"T", t}, {"B", b}};
        std::vector<Array> results = interpreter::evaluate(program, testing::random_inputs(program, bindings, seed));
        for (size_t i = 0; i < results.size(); ++i)
          EXPECT_EQ(results[i].sizes, interpreter::sizes_of(program.type(program.body.results[i]).shape, bindings));
      }
  }
}

TEST(Interpreter, RefusesInputsThatDoNotFit) {
  std::string text = "program @p(%a: f32[T]) { return %a }";
  EXPECT_EQ(error_of([&] { run(text, {i64({1}, {0})}); }), "input 0: expected f32[T], but got i64");
  EXPECT_EQ(error_of([&] { run(text, {}); }), "program @p takes 1 inputs, but got 0");
}

}  // namespace
}  // namespace weft::interpreter_test
