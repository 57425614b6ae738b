// symbolic_lengths: if the symbol gets its value again, a program is what it was before; and programs that differ in
// the length alone become the same.

#include "passes/rolling/symbolic_lengths.h"

#include <gtest/gtest.h>

#include "ir/binder.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "passes/rolling/roll.h"
#include "random_program.h"
#include "unroll.h"

namespace weft::symbolic_lengths_test {
namespace {

/// A random scan, unrolled at that length and rolled again.
ir::Program rolled(uint64_t seed, int64_t length) {
  testing::RandomOptions options;
  options.dtype = DType::kF64;
  options.scan_depth = 1;
  options.ops = 10;
  ir::Program program =
      testing::unrolled(testing::with_sizes(testing::random_program(seed, options), {{"T", length}, {"B", 2}}));
  passes::roll(program);
  return program;
}

std::vector<std::vector<int64_t>> sizes_of_inputs(const ir::Program& program) {
  std::vector<std::vector<int64_t>> sizes;
  for (ir::ValueId input : program.body.args) {
    sizes.emplace_back();
    for (const ir::Dim& dim : program.type(input).shape) sizes.back().push_back(dim.constant());
  }
  return sizes;
}

TEST(SymbolicLengths, OfRandomScans) {
  int general = 0, same = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::string texts[2];
    for (size_t i = 0; i < 2; ++i) {
      const int64_t length = i == 0 ? 11 : 17;
      const ir::Program before = rolled(seed, length);
      ir::Program after = before;
      passes::symbolic_lengths(after);
      SCOPED_TRACE(fmt::format("{}\n{}\n{}", seed, ir::print(before), ir::print(after)));
      EXPECT_NO_THROW(ir::verify(after));
      EXPECT_EQ(ir::print(testing::with_sizes(after, ir::bind(after, sizes_of_inputs(before))), true),
                ir::print(before, true));
      texts[i] = ir::print(after, true);
      general += texts[i] != ir::print(before, true);
    }
    same += texts[0] == texts[1];
  }
  EXPECT_GT(general, 30);
  EXPECT_GT(same, 10);
}

}  // namespace
}  // namespace weft::symbolic_lengths_test
