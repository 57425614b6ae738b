// Extern ops with a function that runs them: in the body, in loops, in branches, and the derivatives that they bring
// along.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/external.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "programs.h"
#include "random_program.h"

namespace weft::extern_test {
namespace {

using testing::Arrays;
using testing::error_of;

/// `lib.scale(x, k)`: k x, k being written as so many characters between the brackets; `lib.fail()` fails.
void run_for_test(std::string_view call, std::span<const ExternTensor> operands,
                  std::span<const ExternTensor> results) {
  if (extern_name(call) == "lib.fail") throw std::out_of_range("from far away");
  auto factor = static_cast<double>(call.size() - call.find('(') - 2);
  int64_t count = 1;
  for (int64_t size : operands[0].sizes) count *= size;
  for (int64_t i = 0; i < count; ++i)
    static_cast<double*>(results[0].data)[i] = factor * static_cast<const double*>(operands[0].data)[i];
}

class Extern : public ::testing::Test {
 protected:
  void SetUp() override { set_extern(run_for_test); }
  void TearDown() override { set_extern(nullptr); }
};

constexpr char kLoop[] = R"text(program @p(%x: f64[T,B], %h0: f64[B], %p: bool[]) {
  %hT, %ys = scan length T carry(%h = %h0) xs(%xt = %x) {
    %a = extern %h {call = "lib.scale(__)", vjp = "program @v(%x: f64[N], %y: f64[N], %d: f64[N]) { %g = extern %d {call = \"lib.scale(__)\", vjp = \"program @w(%x: f64[N], %y: f64[N], %d: f64[N]) { %g = extern %d {call = \\\"lib.scale(__)\\\"} : f64[N] return %g }\"} : f64[N] return %g }"} : f64[B]
    %b = cond %p then {
      %c = extern %xt {call = "lib.scale(___)", vjp = "program @v(%x: f64[N], %y: f64[N], %d: f64[N]) { %k = constant {value = 3} : f64[N] %g = mul %d, %k : f64[N] return %g }"} : f64[B]
      yield %c
    } else {
      yield %xt
    } : f64[B]
    %s = sin %a : f64[B]
    %n = mul %s, %b : f64[B]
    yield carry(%n) ys(%b)
  } : f64[B], f64[T,B]
  return %hT, %ys
})text";

const ir::Bindings kSizes{{"T", 3}, {"B", 2}};

TEST_F(Extern, InLoopsAndBranches) {
  ir::Program program = ir::parse(kLoop);
  for (double taken : {0.0, 1.0}) {
    Arrays inputs = testing::random_inputs(program, kSizes, 5);
    inputs[2] = interpreter::Array::of(DType::kBool, {}, std::array{taken});
    Arrays expected = interpreter::evaluate(program, inputs);
    std::vector<double> x = inputs[0].to_doubles(), ys = expected[1].to_doubles();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_DOUBLE_EQ(ys[i], taken != 0 ? 3 * x[i] : x[i]);
    EXPECT_LT(testing::difference(testing::run_native(kLoop, inputs, kSizes, runtime::own_team(2)), expected), 1e-12);
    std::vector<bool> wanted = testing::floating_inputs(program);
    Arrays cotangents = testing::random_cotangents(program, kSizes, 6);
    Arrays found = testing::gradients(program, wanted, inputs, cotangents, passes::Keep::kBalanced);
    EXPECT_LT(testing::gradient_error(program, inputs, cotangents, found), 1e-6);
    ir::Program once = passes::vjp_of_primals(program, wanted);
    Arrays all = inputs;
    all.insert(all.end(), cotangents.begin(), cotangents.end());
    EXPECT_LT(testing::difference(interpreter::evaluate(once, all), found), 1e-12);
    Arrays more = testing::random_cotangents(once, kSizes, 7);
    Arrays twice = testing::gradients(once, testing::floating_inputs(once), all, more, passes::Keep::kBalanced);
    EXPECT_LT(testing::gradient_error(once, all, more, twice), 1e-6);
  }
}

TEST_F(Extern, ErrorsComeOutAsTheyAre) {
  constexpr char kText[] = "program @p(%x: f64[B]) { %y = extern %x {call = \"lib.fail(%0)\"} : f64[B] return %y }";
  Arrays inputs = testing::random_inputs(ir::parse(kText), {{"B", 2}}, 1);
  EXPECT_THROW(testing::run_native(kText, inputs, {{"B", 2}}, runtime::own_team(2)), std::out_of_range);
}

TEST_F(Extern, SaysWhatItsDerivativeLacks) {
  auto error = [](std::string_view vjp) {
    std::string text = fmt::format(
        "program @p(%x: f64[B], %w: f64[3]) {{ %y = extern %x, %w {{call = \"lib.scale(%0, %1)\"{}}} : f64[B] return "
        "%y }}",
        vjp);
    return error_of([&] { passes::vjp(ir::parse(text), {true, true}); });
  };
  EXPECT_EQ(error(""), "extern: the derivative of lib.scale is not known");
  EXPECT_EQ(error(R"(, vjp = "nonsense")"), "line 1, column 1: expected 'program', but found 'nonsense'");
  EXPECT_EQ(error(R"(, vjp = "program @v(%x: f64[N]) { return %x }")"), "the called program takes 1 inputs, not 4");
  EXPECT_EQ(error(R"(, vjp = "program @v(%x: f64[N], %w: f64[3], %y: f64[N], %d: f64[N]) { return %d }")"),
            "extern: the derivative of lib.scale gives 1 cotangents for 2 operands");
  EXPECT_EQ(error(R"(, vjp = "program @v(%x: f64[N], %w: f64[3], %y: f64[N], %d: f64[N]) { return %d, %d }")"),
            "extern: the derivative of lib.scale gives f64[B] for an operand of f64[3]");
}

}  // namespace
}  // namespace weft::extern_test
