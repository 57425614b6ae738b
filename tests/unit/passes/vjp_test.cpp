// Gradients against finite differences in f64, for every op's rule, for cells, and for random programs; and twice.

#include "passes/differentiation/vjp.h"

#include <array>
#include <fstream>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "programs.h"
#include "random_program.h"

namespace weft::vjp_test {
namespace {

using interpreter::evaluate;
using passes::Keep;
using testing::Arrays;

constexpr double kTolerance = 2e-6;

/// The same program in f64.
ir::Program in_f64(const std::string& text) { return ir::parse(testing::replaced(text, "f32[", "f64[")); }

/// Checks both derivative programs against finite differences. `times`: the order of the highest derivative that is
/// checked.
void check_gradients(const ir::Program& program, const ir::Bindings& bindings, int times = 1, uint64_t seed = 1) {
  SCOPED_TRACE(ir::print(program));
  std::vector<bool> wanted = testing::floating_inputs(program);
  Arrays inputs = testing::random_inputs(program, bindings, seed);
  Arrays cotangents = testing::random_cotangents(program, bindings, seed + 1);
  Arrays balanced = testing::gradients(program, wanted, inputs, cotangents, Keep::kBalanced);
  EXPECT_LT(testing::gradient_error(program, inputs, cotangents, balanced), kTolerance);
  Arrays minimal = testing::gradients(program, wanted, inputs, cotangents, Keep::kMinimal);
  EXPECT_LT(testing::difference(balanced, minimal), 1e-9);
  ir::Program once = passes::vjp_of_primals(program, wanted);
  ir::verify(once);
  Arrays all = inputs;
  all.insert(all.end(), cotangents.begin(), cotangents.end());
  EXPECT_LT(testing::difference(balanced, evaluate(once, all)), 1e-9);
  if (times > 1) check_gradients(once, bindings, times - 1, seed + 2);
}

struct RuleCase {
  std::string name, text;
};

class VjpRule : public ::testing::TestWithParam<RuleCase> {};

TEST_P(VjpRule, AgreesWithFiniteDifferencesTwice) { check_gradients(in_f64(GetParam().text), {{"B", 3}, {"T", 4}}, 2); }

/// `op` on %a, %b: f64[B,4] and %c: f64[4]; positive operands where a function needs them.
RuleCase simple(const std::string& name, const std::string& op) {
  return {name, "program @" + name +
                    "(%a: f32[B,4], %b: f32[B,4], %c: f32[4], %w: f32[4,5], %i: i64[T]) {\n"
                    "  %one = constant {value = 1.5} : f32[B,4]\n"
                    "  %a2 = mul %a, %a : f32[B,4]\n  %p = add %a2, %one : f32[B,4]\n  " +
                    op + "\n  return %r\n}"};
}

std::vector<RuleCase> rule_cases() {
  std::vector<RuleCase> cases;
  for (const char* op : {"copy", "neg", "abs", "exp", "tanh", "sigmoid", "relu", "sin", "cos", "erf"})
    cases.push_back(simple(op, std::string("%r = ") + op + " %a : f32[B,4]"));
  for (const char* op : {"log", "log1p", "sqrt", "rsqrt"})
    cases.push_back(simple(op, std::string("%r = ") + op + " %p : f32[B,4]"));
  for (const char* op : {"add", "sub", "mul", "maximum", "minimum"})
    cases.push_back(simple(op, std::string("%r = ") + op + " %a, %b : f32[B,4]"));
  for (const char* op : {"div", "pow"})
    cases.push_back(simple(op, std::string("%q = ") + op + " %b, %p : f32[B,4]\n  %r = " + op + " %p, %b : f32[B,4]"));
  auto more = [&](const char* name, const char* op) { cases.push_back(simple(name, op)); };
  more("div_by", "%r = div %b, %p : f32[B,4]");
  more("square", "%r = mul %a, %a : f32[B,4]");
  more("select", "%k = lt %a, %b : bool[B,4]  %s = sin %a : f32[B,4]  %r = select %k, %s, %b : f32[B,4]");
  more("broadcast", "%s = sin %c : f32[4]  %r = broadcast %s {dims = [1]} : f32[T,4]");
  more("broadcast_mul", "%s = broadcast %c {dims = [1]} : f32[B,4]  %r = mul %s, %a : f32[B,4]");
  more("reshape", "%s = reshape %a : f32[4*B]  %r = mul %s, %s : f32[4*B]");
  more("transpose", "%s = transpose %w {perm = [1, 0]} : f32[5,4]  %r = sin %s : f32[5,4]");
  more("slice", "%s = slice %a {dim = 1, start = 1, limit = 3} : f32[B,2]  %r = sin %s : f32[B,2]");
  more("slices",
       "%s = slice %a {dim = 1, start = 0, limit = 2} : f32[B,2]  %t = slice %a {dim = 1, start = 1, limit = 3} : "
       "f32[B,2]"
       "  %r = mul %s, %t : f32[B,2]");
  more("pad", "%s = pad %a {dim = 1, low = 1, high = 2} : f32[B,7]  %r = sin %s : f32[B,7]");
  more("concat", "%s = concat %a, %b, %a {dim = 1} : f32[B,12]  %r = sin %s : f32[B,12]");
  more("reverse", "%s = reverse %a {dim = 1} : f32[B,4]  %r = mul %s, %b : f32[B,4]");
  more("gather", "%s = gather %w, %i : f32[T,5]  %r = mul %s, %s : f32[T,5]");
  more("dynamic_slice",
       "%k = constant {value = 1} : i64[]  %s = dynamic_slice %w, %k {dim = 0, size = 3} : f32[3,5]"
       "  %r = mul %s, %s : f32[3,5]");
  more("dynamic_update",
       "%k = constant {value = 2} : i64[]  %s = slice %w {dim = 1, start = 0, limit = 2} : f32[4,2]"
       "  %t = tanh %s : f32[4,2]  %v = dynamic_update %w, %t, %k {dim = 1} : f32[4,5]  %r = mul %v, %v : f32[4,5]");
  more("scatter_add", "%g = gather %w, %i : f32[T,5]  %s = scatter_add %i, %g : f32[6,5]  %r = mul %s, %s : f32[6,5]");
  more("reduce_sum", "%s = reduce_sum %a {dims = [0]} : f32[4]  %r = sin %s : f32[4]");
  more("reduce_all", "%s = reduce_sum %a {dims = [0, 1]} : f32[]  %r = sin %s : f32[]");
  more("reduce_max", "%s = reduce_max %a {dims = [1]} : f32[B]  %r = sin %s : f32[B]");
  more("matmul", "%r = matmul %a, %w : f32[B,5]");
  more("matmul_transposed", "%t = matmul %a, %w : f32[B,5]  %r = matmul %t, %w {transpose_b = true} : f32[B,4]");
  more("matmul_vector", "%r = matmul %c, %w : f32[5]");
  more("outer", "%r = outer %a, %b : f32[4,4]");
  more("outer_vector", "%r = outer %c, %c : f32[4,4]");
  more("cast", "%s = cast %a : f64[B,4]  %r = mul %s, %s : f32[B,4]");
  for (int i = 0; i < 4; ++i) {
    std::string flags =
        std::string(i & 1 ? "transpose_a = true" : "") + (i == 3 ? ", " : "") + (i & 2 ? "transpose_b = true" : "");
    std::string a = i & 1 ? "%x: f32[B,3,2]" : "%x: f32[B,2,3]";
    std::string b = i & 2 ? "%y: f32[B,4,3]" : "%y: f32[B,3,4]";
    cases.push_back(
        {"batch_matmul_" + std::to_string(i),
         "program @p(" + a + ", " + b + ") { %r = batch_matmul %x, %y {" + flags + "} : f32[B,2,4]\n  return %r }"});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, VjpRule, ::testing::ValuesIn(rule_cases()),
                         [](const auto& info) { return info.param.name; });

class VjpCell : public ::testing::TestWithParam<std::string> {};

TEST_P(VjpCell, AgreesWithFiniteDifferencesTwice) {
  ir::Program program = in_f64(testing::program_text(GetParam()));
  for (int64_t t : {0, 1, 3}) check_gradients(program, {{"T", t}, {"B", 2}}, t == 3 ? 2 : 1);
}

INSTANTIATE_TEST_SUITE_P(All, VjpCell, ::testing::Values("gru", "lstm", "rnn_tanh", "lngru"));

TEST(Vjp, PackedCells) {
  for (const char* name : {"packed_gru", "packed_lstm"})
    for (auto [t, b, n] : {std::array<int64_t, 3>{4, 3, 8}, {1, 2, 2}, {3, 1, 3}, {3, 2, 6}, {0, 2, 0}})
      check_gradients(in_f64(testing::program_text(name)), {{"T", t}, {"B", b}, {"N", n}}, t == 4 ? 2 : 1);
}

/// Sums of a step over its rows, of captured rows and of rows as carries; rows that are summed each on their own.
TEST(Vjp, RaggedScanThatMixesRows) {
  check_gradients(in_f64(R"(program @mixed(%x: f32[N,3], %sizes: i64[T], %h: f32[B,3], %k: f32[B,3], %s: f32[3]) {
    %hT, %kT, %sT, %ys, %sums = scan reverse length T ragged(%sizes, B, N) carry(%c = %h, %d = %k, %u = %s) xs(%xt = %x) {
      %r = reduce_sum %k {dims = [0]} : f32[3]
      %q = reduce_sum %c {dims = [0]} : f32[3]
      %v = mul %u, %r : f32[3]
      %w = sin %v : f32[3]
      %wb = broadcast %w {dims = [1]} : f32[B,3]
      %a = mul %xt, %wb : f32[B,3]
      %n = add %a, %k : f32[B,3]
      %m = sin %n : f32[B,3]
      %e = add %d, %m : f32[B,3]
      yield carry(%m, %e, %q) ys(%n, %w)
    } : f32[B,3], f32[B,3], f32[3], f32[N,3], f32[T,3]
    return %hT, %kT, %sT, %ys, %sums
  })"),
                  {{"T", 4}, {"B", 3}, {"N", 9}}, 2);
}

/// Each step of a dense scan contains a ragged scan, whose last rows are the dense scan's carry.
TEST(Vjp, RaggedScanInAScan) {
  ir::Program program = in_f64(R"(program @nested(%x: f32[S,N,3], %sizes: i64[T], %h: f32[B,3], %w: f32[3,3]) {
    %last, %all = scan reverse length S carry(%c = %h) xs(%xs = %x) {
      %hT, %ys = scan length T ragged(%sizes, B, N) carry(%d = %c) xs(%xt = %xs) {
        %p = matmul %d, %w : f32[B,3]
        %a = add %p, %xt : f32[B,3]
        %n = tanh %a : f32[B,3]
        %m = mul %n, %c : f32[B,3]
        yield carry(%n) ys(%m)
      } : f32[B,3], f32[N,3]
      %s = reduce_sum %ys {dims = [0]} : f32[3]
      yield carry(%hT) ys(%s)
    } : f32[B,3], f32[S,3]
    return %last, %all
  })");
  check_gradients(program, {{"T", 4}, {"B", 3}, {"N", 8}, {"S", 2}}, 2);
}

TEST(Vjp, ReverseScanWithOneStepAndNone) {
  for (int64_t t : {0, 1, 5})
    check_gradients(in_f64(R"(program @reversed(%x: f32[T,B,3], %h: f32[B,3], %w: f32[3,3]) {
      %last, %all = scan reverse length T carry(%c = %h) xs(%s = %x) {
        %p = matmul %c, %w : f32[B,3]
        %a = add %p, %s : f32[B,3]
        %n = tanh %a : f32[B,3]
        yield carry(%n) ys(%a)
      } : f32[B,3], f32[T,B,3]
      return %last, %all
    })"),
                    {{"T", t}, {"B", 2}}, 2);
}

TEST(Vjp, NestedScanThatCapturesFromBothLevels) {
  check_gradients(in_f64(R"(program @nested(%x: f32[T,B,3], %h: f32[B,3], %w: f32[3,3], %k: f32[S,B,3]) {
    %last, %all = scan length T carry(%c = %h) xs(%s = %x) {
      %p = matmul %c, %w : f32[B,3]
      %q, %qs = scan reverse length S carry(%d = %p) xs(%e = %k) {
        %m = matmul %d, %w {transpose_b = true} : f32[B,3]
        %u = mul %m, %s : f32[B,3]
        %v = add %u, %e : f32[B,3]
        %t = tanh %v : f32[B,3]
        yield carry(%t) ys(%u)
      } : f32[B,3], f32[S,B,3]
      %r = reduce_sum %qs {dims = [0]} : f32[B,3]
      %a = add %q, %r : f32[B,3]
      %n = sin %a : f32[B,3]
      yield carry(%n) ys(%r)
    } : f32[B,3], f32[T,B,3]
    return %last, %all
  })"),
                  {{"T", 3}, {"B", 2}, {"S", 2}}, 2);
}

TEST(Vjp, IntegerAndBoolCarries) {
  check_gradients(in_f64(R"(program @counted(%x: f32[T,B], %h: f32[B], %n: i64[], %table: f32[4,B]) {
    %one = constant {value = 1} : i64[]
    %two = constant {value = 2} : i64[]
    %off = constant {value = 0} : bool[]
    %hT, %i, %flag, %ys, %is = scan length T carry(%c = %h, %k = %n, %f = %off) xs(%s = %x) {
      %k2 = add %k, %one : i64[]
      %g = not %f : bool[]
      %k3 = minimum %k2, %two : i64[]
      %row = gather %table, %k3 : f32[B]
      %on = broadcast %g {dims = []} : bool[B]
      %y = select %on, %s, %row : f32[B]
      %m = mul %y, %c : f32[B]
      %z = sin %m : f32[B]
      yield carry(%z, %k2, %g) ys(%y, %k2)
    } : f32[B], i64[], bool[], f32[T,B], i64[T]
    return %hT, %ys, %is, %i
  })"),
                  {{"T", 4}, {"B", 3}}, 2);
}

TEST(Vjp, CarriesThatSwapOrPassThrough) {
  check_gradients(in_f64(R"(program @swapped(%x: f32[T,B], %a: f32[B], %b: f32[B], %c: f32[B], %d: f32[B]) {
    %aT, %bT, %cT, %dT = scan length T carry(%p = %a, %q = %b, %r = %c, %s = %d) xs(%xt = %x) {
      %m = mul %p, %r : f32[B]
      %n = sin %m : f32[B]
      yield carry(%q, %n, %r, %xt) ys()
    } : f32[B], f32[B], f32[B], f32[B]
    return %aT, %dT, %cT
  })"),
                  {{"T", 5}, {"B", 2}}, 2);
}

TEST(Vjp, OutputsThatAreInputsConstantsOrOneAnother) {
  check_gradients(in_f64(R"(program @odd(%x: f32[T,B], %y: f32[B]) {
    %k = constant {value = 2.0} : f32[B]
    %s = sin %y : f32[B]
    return %x, %k, %s, %s, %x
  })"),
                  {{"T", 2}, {"B", 2}}, 2);
}

/// A cond in a scan: on a count that is carried, on what varies, with a scan inside, with branches that yield what they
/// capture, use different values, or none.
TEST(Vjp, CondsInALoop) {
  check_gradients(in_f64(R"(program @p(%x: f32[T,B], %h0: f32[B], %w: f32[B], %v: f32[B], %n: i64[]) {
    %zero = constant {value = 0} : i64[]
    %hT, %iT, %ys = scan length T carry(%h = %h0, %i = %zero) xs(%xt = %x) {
      %active = lt %i, %n : bool[]
      %h1, %y = cond %active then {
        %m = mul %h, %w : f32[B]
        %s = add %m, %xt : f32[B]
        %g = tanh %s : f32[B]
        %sum = reduce_sum %g {dims = [0]} : f32[]
        %c = constant {value = 0.1} : f32[]
        %big = gt %sum, %c : bool[]
        %k = cond %big then {
          %q = scan length 2 carry(%u = %g) xs() { %e = sin %u : f32[B] yield carry(%e) ys() } : f32[B]
          yield %q
        } else {
          yield %h
        } : f32[B]
        yield %k, %g
      } else {
        %none = constant {value = 0.0} : f32[B]
        %t = mul %v, %v : f32[B]
        yield %h, %t
      } : f32[B], f32[B]
      %one = constant {value = 1} : i64[]
      %next = add %i, %one : i64[]
      yield carry(%h1, %next) ys(%y)
    } : f32[B], i64[], f32[T,B]
    return %hT, %ys, %iT
  })"),
                  {{"T", 3}, {"B", 2}}, 2);
}

TEST(Vjp, RefusesWhatALoopOfUnknownLengthMakesVary) {
  ir::Program program = in_f64(R"(program @p(%x: f32[B], %y: f32[B], %n: i64[]) {
    %h, %k = while carry(%h = %x, %k = %n) {
      %zero = constant {value = 0} : i64[]
      %more = gt %k, %zero : bool[]
      yield %more
    } do(%h, %k) {
      %s = sin %h : f32[B]
      %one = constant {value = 1} : i64[]
      %less = sub %k, %one : i64[]
      yield %s, %less
    } : f32[B], i64[]
    %z = mul %h, %y : f32[B]
    return %z
  })");
  EXPECT_NE(testing::error_of([&] { passes::vjp(program, {true, false, false}); }).find("max_steps"),
            std::string::npos);
  passes::Vjp other = passes::vjp(program, {false, true, false});  // by %y: the while's result is a constant there
  EXPECT_EQ(other.backward.body.results.size(), 1u);
}

/// The gradient of x s(x) is s(x), whose gradient is zero; in a scan it is the last step's alone that passes.
TEST(Vjp, NothingPassesAStopGradientEvenTwice) {
  ir::Program program = in_f64(R"(program @p(%x: f32[B], %h0: f32[B]) {
    %s = stop_gradient %x : f32[B]
    %y = mul %x, %s : f32[B]
    %hT = scan length 3 carry(%h = %h0) xs() {
      %k = stop_gradient %h : f32[B]
      %n = mul %k, %x : f32[B]
      yield carry(%n) ys()
    } : f32[B]
    return %y, %hT
  })");
  Arrays inputs = {interpreter::Array::of(DType::kF64, {2}, std::array{2.0, 3.0}),
                   interpreter::Array::of(DType::kF64, {2}, std::array{5.0, 7.0})};
  Arrays cotangents = {interpreter::Array::of(DType::kF64, {2}, std::array{1.0, 10.0}),
                       interpreter::Array::of(DType::kF64, {2}, std::array{1.0, 1.0})};
  Arrays found = testing::gradients(program, {true, true}, inputs, cotangents, Keep::kBalanced);
  EXPECT_EQ(found[0].to_doubles(), (std::vector{2.0 + 5 * 4, 30.0 + 7 * 9}));  // x, and h of the last step: h0 x^2
  EXPECT_EQ(found[1].to_doubles(), (std::vector{0.0, 0.0}));

  ir::Program once = passes::vjp_of_primals(program, {true, true});
  Arrays all = inputs;
  all.insert(all.end(), cotangents.begin(), cotangents.end());
  EXPECT_EQ(testing::difference(evaluate(once, all), found), 0);
  Arrays ones = {interpreter::Array::of(DType::kF64, {2}, std::array{1.0, 1.0}),
                 interpreter::Array::of(DType::kF64, {2}, std::array{1.0, 1.0})};
  Arrays twice = testing::gradients(once, {true, true, true, true}, all, ones, Keep::kBalanced);
  EXPECT_EQ(twice[0].to_doubles(), (std::vector{0.0, 0.0}));
  EXPECT_EQ(twice[1].to_doubles(), (std::vector{0.0, 0.0}));
  EXPECT_EQ(twice[2].to_doubles(), (std::vector{2.0, 3.0}));
  EXPECT_EQ(twice[3].to_doubles(), (std::vector{20.0, 63.0}));
}

TEST(Vjp, AnInputWithoutInfluenceHasAGradientOfZeros) {
  ir::Program program = in_f64("program @p(%x: f32[T,B], %y: f32[B]) { %s = sin %y : f32[B] return %s }");
  Arrays inputs = testing::random_inputs(program, {{"T", 2}, {"B", 3}}, 1);
  Arrays cotangents = testing::random_cotangents(program, {{"T", 2}, {"B", 3}}, 2);
  Arrays found = testing::gradients(program, {true, false}, inputs, cotangents, Keep::kBalanced);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sizes, inputs[0].sizes);
  for (double value : found[0].to_doubles()) EXPECT_EQ(value, 0);
}

TEST(Vjp, RefusesIntegers) {
  ir::Program program = ir::parse("program @p(%x: i64[B]) { return %x }");
  EXPECT_EQ(testing::error_of([&] { passes::vjp(program, {true}); }),
            "vjp: input 0 is i64[B], and only floating inputs have gradients");
  EXPECT_EQ(testing::error_of([&] { passes::vjp(program, {}); }), "vjp: the program has 1 inputs, but wanted has 0");
}

/// A GRU keeps its gates, the hidden part of the candidate and the states before each step: five stacks, and no
/// product.
TEST(Vjp, AGruKeepsFiveSmallStacks) {
  ir::Program program = ir::parse(testing::program_text("gru"));
  passes::Vjp vjp = passes::vjp(program, testing::floating_inputs(program));
  EXPECT_EQ(vjp.residuals, 5);
  const auto& results = vjp.forward.body.results;
  for (size_t i = program.body.results.size(); i < results.size(); ++i)
    EXPECT_EQ(to_string(vjp.forward.type(results[i])), "f32[T,B,16]");
  EXPECT_EQ(passes::vjp(program, testing::floating_inputs(program), Keep::kMinimal).residuals, 1);
}

TEST(Vjp, RandomRaggedPrograms) {
  testing::RandomOptions options;
  options.dtype = DType::kF64;
  options.mixed = false;
  options.ops = 7;
  options.ragged = true;
  const std::vector<ir::Bindings> sizes = {{{"T", 4}, {"B", 3}, {"N", 8}},
                                           {{"T", 3}, {"B", 2}, {"N", 4}},
                                           {{"T", 0}, {"B", 2}, {"N", 0}},
                                           {{"T", 2}, {"B", 1}, {"N", 2}}};
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    options.row_wise = seed % 2;
    check_gradients(testing::random_program(seed, options), sizes[seed % 4], seed % 10 == 0 ? 2 : 1, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Vjp, RandomPrograms) {
  testing::RandomOptions options;
  options.dtype = DType::kF64;
  options.mixed = false;
  options.scan_depth = 2;
  options.ops = 7;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    ir::Program program = testing::random_program(seed, options);
    check_gradients(program, {{"T", static_cast<int64_t>(seed % 4)}, {"B", 2}}, seed % 10 == 0 ? 2 : 1, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft::vjp_test
