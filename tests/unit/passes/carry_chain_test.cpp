// Loops whose carries depend on each other in a chain, each on the next: facts found out about the last carry reach the
// first step by step.

#include <gtest/gtest.h>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "passes/differentiation/vjp.h"
#include "passes/pass_runner.h"
#include "random_program.h"

namespace weft::carry_chain_test {
namespace {

using ir::Builder;
using ir::ValueId;

/// A shift register of so many places. x goes in at the last place, and the number that leaves the first is multiplied
/// by its square. Beside it are as many carries that only themselves read, in a chain too.
ir::Program shift_register(int64_t places, int64_t steps) {
  ir::Program program;
  Builder builder(program, program.body);
  const ir::Type type{DType::kF64, {ir::Dim(3)}};
  const ValueId x = builder.input({DType::kF64, {ir::Dim(steps), ir::Dim(3)}}, "x");
  const ValueId h = builder.input(type, "h");
  const std::vector<ValueId> inits(static_cast<size_t>(2 * places), h);
  auto step = [&](Builder& body, std::span<const ValueId> carries, std::span<const ValueId> xs) {
    Builder::StepResults results;
    for (int64_t i = 0; i < places; ++i)
      results.carries.push_back(i + 1 < places ? carries[static_cast<size_t>(i) + 1] : body.tanh(xs[0]));
    for (int64_t i = places; i < 2 * places; ++i)
      results.carries.push_back(body.neg(carries[static_cast<size_t>(i + 1 < 2 * places ? i + 1 : places)]));
    results.ys.push_back(body.mul(carries[0], body.mul(carries[0], carries[0])));
    return results;
  };
  const std::vector<ValueId> results = builder.scan(inits, {x}, ir::Dim(steps), false, step);
  builder.ret({results.back()});
  return program;
}

TEST(CarryChainTest, DeadCodeGoesThroughAChain) {
  ir::Program program = shift_register(40, 50);
  const testing::Arrays inputs = testing::random_inputs(program, {}, 1);
  const testing::Arrays expected = interpreter::evaluate(program, inputs);
  passes::find_pass("dce").run(program);
  ASSERT_NO_THROW(ir::verify(program));
  EXPECT_EQ(program.body.ops[0].attr<int64_t>("carries"), 40) << "what only reads itself is gone";
  EXPECT_EQ(testing::difference(interpreter::evaluate(program, inputs), expected), 0);
}

TEST(CarryChainTest, GradientsGoThroughAChain) {
  const ir::Program program = shift_register(12, 20);
  const testing::Arrays inputs = testing::random_inputs(program, {}, 1);
  const testing::Arrays cotangents = testing::random_cotangents(program, {}, 2);
  const testing::Arrays gradients =
      testing::gradients(program, {true, true}, inputs, cotangents, passes::Keep::kBalanced);
  EXPECT_LT(testing::gradient_error(program, inputs, cotangents, gradients), 1e-5);
}

}  // namespace
}  // namespace weft::carry_chain_test
