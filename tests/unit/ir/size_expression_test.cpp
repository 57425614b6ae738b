// Sizes as expressions: their canonical form and text, their values in a call, and programs of such sizes in machine
// code against the interpreter.

#include <gtest/gtest.h>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/binder.h"
#include "ir/size_checks.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/text/size_parser.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/plan/plan_text.h"
#include "runtime/threads/team.h"

namespace weft::size_expression_test {
namespace {

using interpreter::Array;
using ir::Dim;
using testing::error_of;

const Dim kT = Dim::symbol("T"), kB = Dim::symbol("B");

TEST(SizeExpression, HasOneForm) {
  EXPECT_EQ(Dim(2) * (kT + Dim(1)), kT + Dim(2) + kT);
  EXPECT_EQ(kT - kT, Dim(0));
  EXPECT_EQ((kT + Dim(1)) * (kT - Dim(1)), kT * kT - Dim(1));
  EXPECT_EQ(floor_divide(Dim(2) * kT + Dim(3), 2), kT + Dim(1));
  EXPECT_EQ(floor_divide(kT + Dim(3), 2), floor_divide(kT + Dim(1), 2) + Dim(1));
  EXPECT_EQ(floor_divide(Dim(2) * kT + Dim(3), 4), floor_divide(kT + Dim(1), 2));
  EXPECT_EQ(floor_divide(floor_divide(kT + Dim(1), 2) + Dim(1), 3), floor_divide(kT + Dim(3), 6));
}

TEST(SizeExpression, HasTheValueOfItsDefinition) {
  auto down = [](int64_t a, int64_t b) { return a / b - (a % b < 0); };
  for (int64_t factor = -5; factor <= 5; ++factor)
    for (int64_t offset = -7; offset <= 7; ++offset)
      for (int64_t divisor = 1; divisor <= 6; ++divisor) {
        const Dim inner = floor_divide(Dim(factor) * kT + Dim(offset), divisor);
        const Dim outer = floor_divide(inner + kB + Dim(offset), 4) * (kT - inner);
        for (int64_t t = 0; t < 9; ++t)
          for (int64_t b = 0; b < 4; ++b) {
            const int64_t want = down(factor * t + offset, divisor);
            ASSERT_EQ(evaluate(inner, {{"T", t}}), want) << to_string(inner) << " at " << t;
            ASSERT_EQ(evaluate(outer, {{"T", t}, {"B", b}}), down(want + b + offset, 4) * (t - want))
                << to_string(outer);
          }
        EXPECT_EQ(ir::parse_dim(to_string(outer)), outer) << to_string(outer);
      }
}

TEST(SizeExpression, IsPrintedAsItIsRead) {
  const std::vector<std::pair<Dim, std::string>> cases = {
      {kT + Dim(1), "T+1"},
      {kT - Dim(1), "T-1"},
      {Dim(5) - kT, "5-T"},
      {kB * kT + kB, "B*T+B"},
      {floor_divide(kT + Dim(1), 2), "(T+1)//2"},
      {floor_divide(kT, 2), "T//2"},
      {Dim(4) * floor_divide(kT, 2) - kB, "0-B+4*(T//2)"},
  };
  for (const auto& [dim, text] : cases) {
    EXPECT_EQ(to_string(dim), text);
    EXPECT_EQ(ir::parse_dim(text), dim) << text;
  }
  EXPECT_EQ(ir::parse_dim("4*T//2"), Dim(2) * kT) << "from left to right, as in Python";
}

TEST(SizeExpression, ErrorsOfTextNameTheirPlace) {
  auto error = [](const std::string& size) {
    return error_of([&] { ir::parse("program @p(%t: f32[T], %x: f32[" + size + "]) {\n  return %x\n}\n"); });
  };
  EXPECT_EQ(error("T//0"), "line 1, column 35: a size is divided by a positive number");
  EXPECT_EQ(error("T+"),
            "line 1, column 34: expected a size: a number, a symbol or an expression of these, but found ']'");
  EXPECT_EQ(error("(T"), "line 1, column 34: expected ')', but found ']'");
  EXPECT_NE(error("3-T-4").find("the size -1-T is outside 0..2^62"), std::string::npos) << error("3-T-4");
  EXPECT_NE(error("K+1").find("the symbol K is not the size of any input's dim"), std::string::npos) << error("K+1");
  EXPECT_NE(error(std::string(40, '(') + "T").find("parentheses are nested"), std::string::npos);
}

TEST(SizeExpression, CommentsStayComments) {
  const ir::Program program = ir::parse("program @p(%x: f32[T // 2 divided\n]) { // 2 lines\n  return %x // 3\n}\n");
  EXPECT_EQ(to_string(program.type(program.body.args[0])), "f32[T]") << "text goes on behind a comment's line";
}

constexpr const char* kNeighbours = R"(
program @neighbours(%x: f64[T,3]) {
  %a = slice %x {dim = 0, limit = dim(T), start = 1}
  %b = slice %x {dim = 0, limit = dim(T-1), start = 0}
  %c = mul %a, %b
  return %c
}
)";

constexpr const char* kCache = R"(
program @cache(%k: f64[B,S,3], %cache: f64[B,T,3]) {
  %all = concat %cache, %k {dim = 1}
  %last = slice %all {dim = 1, limit = dim(S+T), start = dim(T)}
  %padded = pad %last {dim = 1, high = 1, low = dim(T)}
  %sum = reduce_sum %all {dims = [1]}
  %half = slice %padded {dim = 1, limit = dim((S+T)//2), start = 0}
  return %all, %last, %padded, %sum, %half
}
)";

/// The program's results in machine code and in the interpreter, which must be equal.
void expect_agreement(const ir::Program& program, const ir::Bindings& bindings) {
  const std::vector<Array> inputs = testing::random_inputs(program, bindings, 7);
  const std::vector<Array> want = interpreter::evaluate(program, inputs);
  const std::vector<Array> got = testing::run_native(ir::print(program), inputs, bindings, runtime::own_team(2));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].sizes, want[i].sizes);
    const std::vector<double> x = got[i].to_doubles(), y = want[i].to_doubles();
    for (size_t k = 0; k < y.size(); ++k) ASSERT_NEAR(x[k], y[k], 1e-12) << "result " << i;
  }
}

TEST(SizeExpression, RunsAsInTheInterpreter) {
  for (int64_t t : {1, 2, 3, 7, 64, 65}) expect_agreement(ir::parse(kNeighbours), {{"T", t}});
  for (int64_t t : {0, 1, 2, 9, 33})
    for (int64_t s : {0, 1, 3}) expect_agreement(ir::parse(kCache), {{"T", t}, {"S", s}, {"B", 2}});
}

TEST(SizeExpression, HasDerivatives) {
  for (const char* text : {kNeighbours, kCache}) {
    const ir::Program program = ir::parse(text);
    const std::vector<bool> wanted = testing::floating_inputs(program);
    const ir::Program all = passes::vjp_of_primals(program, wanted);
    for (int64_t t : {1, 2, 5}) {
      const ir::Bindings bindings{{"T", t}, {"S", 3}, {"B", 2}};
      expect_agreement(all, bindings);
      const testing::Arrays inputs = testing::random_inputs(program, bindings, 3);
      const testing::Arrays cotangents = testing::random_cotangents(program, bindings, 4);
      const testing::Arrays found = testing::gradients(program, wanted, inputs, cotangents, passes::Keep::kBalanced);
      EXPECT_LT(testing::gradient_error(program, inputs, cotangents, found), 1e-6) << "T = " << t;
    }
  }
}

TEST(SizeExpression, ThatIsNegativeIsTheUsersError) {
  const ir::Program program = ir::parse(kNeighbours);
  EXPECT_EQ(error_of([&] { ir::bind(program, {{0, 3}}); }),
            "program @neighbours: the size T-1 is negative or overflows 64 bits with T = 0 (dim 0 of input 0 'x')");
  EXPECT_EQ(ir::sizes_to_check(program), std::vector<Dim>{kT - Dim(1)});
}

TEST(SizeExpression, OfAnInputIsCheckedAgainstItsSymbols) {
  const ir::Program program = ir::parse("program @p(%x: f32[T+1], %y: f32[T]) {\n  return %x\n}\n");
  EXPECT_EQ(ir::bind(program, {{4}, {3}}), (ir::Bindings{{"T", 3}}));
  EXPECT_EQ(error_of([&] { ir::bind(program, {{5}, {3}}); }),
            "input 0 'x' of program @p must be f32[T+1] with T = 3 (dim 0 of input 1 'y'), but got f32[5]");
}

TEST(SizeExpression, OfPlansIsReadAsItIsWritten) {
  runtime::Plan plan;
  plan.symbols = {"B", "T"};
  plan.derived = {{{{1, {1}}, {1, {}}}, 2}, {{{3, {0, 2}}, {-1, {1}}}, 1}};
  plan.checks = {{"3*B*((T+1)//2)-T", {1, {3}}}};
  EXPECT_EQ(runtime::read_plan(runtime::write_plan(plan)), plan) << runtime::write_plan(plan);
  EXPECT_EQ(runtime::values_of(plan, {2, 5}), (std::vector<int64_t>{2, 5, 3, 13}));
  EXPECT_EQ(error_of([&] { runtime::values_of(plan, {0, 5}); }), "weft: the size 3*B*((T+1)//2)-T is negative");
}

TEST(SizeExpression, OfRandomProgramsRunsAsInTheInterpreter) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const ir::Program program = testing::random_program(
        seed, {.ops = 10, .scan_depth = 1, .mixed = false, .symbolic_bounds = true, .dtype = DType::kF64});
    for (int64_t t : {0, 1, 3, 6}) {
      SCOPED_TRACE(fmt::format("seed {}, T = {}\n{}", seed, t, ir::print(program)));
      expect_agreement(program, {{"T", t}, {"B", 3}});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace weft::size_expression_test
