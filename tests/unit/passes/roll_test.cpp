// roll: unrolled scans are found again, and programs compute the same bits as before.

#include "passes/rolling/roll.h"

#include "base/settings.h"
#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "programs.h"
#include "random_program.h"
#include "unroll.h"

namespace weft::roll_test {
namespace {

using testing::Arrays;

/// Rolls the program and compares what it computes.
ir::Program rolled(const ir::Program& program, uint64_t seed) {
  ir::Program result = program;
  passes::roll(result);
  SCOPED_TRACE(ir::print(result));
  EXPECT_NO_THROW(ir::verify(result));
  Arrays inputs = testing::random_inputs(program, {}, seed);
  EXPECT_EQ(testing::difference(interpreter::evaluate(result, inputs), interpreter::evaluate(program, inputs)), 0);
  return result;
}

TEST(Roll, RandomScansUnrolledAreScansAgain) {
  int scans = 0;
  int found = 0;
  for (int depth : {1, 2})
    for (uint64_t seed = 0; seed < 200; ++seed) {
      testing::RandomOptions options;
      options.dtype = DType::kF64;
      options.scan_depth = depth;
      options.ops = 10;
      ir::Bindings sizes = {{"T", static_cast<int64_t>(3 + seed % 6)}, {"B", static_cast<int64_t>(1 + seed % 4)}};
      ir::Program program = testing::with_sizes(testing::random_program(seed, options), sizes);
      ir::Program flat = testing::unrolled(program);
      SCOPED_TRACE(fmt::format("{} {}\n{}", depth, seed, ir::print(flat)));
      ir::verify(flat);
      ir::Program again = rolled(flat, seed);
      if (::testing::Test::HasFailure()) return;
      scans += testing::count_scans(program.body) > 0;
      found += testing::count_scans(again.body) > 0;
    }
  EXPECT_GT(found, scans / 2);
}

}  // namespace
}  // namespace weft::roll_test
