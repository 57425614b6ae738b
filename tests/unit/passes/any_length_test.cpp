// any_length: two programs at two lengths give one, which has any third program as its instance.

#include "passes/rolling/any_length.h"

#include <gtest/gtest.h>

#include "ir/text/parser.h"
#include "ir/text/printer.h"

namespace weft::any_length_test {
namespace {

/// Steps in the last dim, of B rows that are one dim with the steps, beside sizes that happen to be the length.
ir::Program at(int64_t length, double factor = 0.5) {
  const auto n = std::to_string(length), rows = std::to_string(3 * length), less = std::to_string(length - 2);
  return ir::parse(
      "program @f(%x: f32[3,8," + n + "], %w: f32[8,8]) {\n" + "  %t = transpose %x {perm = [2, 0, 1]} : f32[" + n +
      ",3,8]\n" + "  %r = reshape %t : f32[" + rows + ",8]\n" + "  %p = matmul %r, %w : f32[" + rows + ",8]\n" +
      "  %q = reshape %p : f32[" + n + ",3,8]\n" + "  %z = constant {value = " + std::to_string(factor) +
      "} : f32[3,8]\n" + "  %h, %ys = scan length " + n + " carry(%c = %z) xs(%u = %q) {\n" +
      "    %a = add %c, %u : f32[3,8]\n    yield carry(%a) ys(%a)\n  } : f32[3,8], f32[" + n + ",3,8]\n" +
      "  %s = slice %ys {dim = 0, start = 2, limit = " + n + "} : f32[" + less + ",3,8]\n" + "  return %s, %h\n}\n");
}

TEST(AnyLength, OfThreeLengths) {
  const auto one = passes::any_length(at(8), 8, at(13), 13), other = passes::any_length(at(8), 8, at(20), 20);
  ASSERT_TRUE(one && other);
  EXPECT_EQ(ir::print(*one), ir::print(*other));
  const std::string text = ir::print(*one);
  for (const char* part : {"f32[3,8,T]", "f32[3*T,8]", "f32[8,8]", "limit = dim(T)", "f32[T-2,3,8]", "scan length T"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(AnyLength, OfProgramsThatDiffer) {
  EXPECT_FALSE(passes::any_length(at(8), 8, at(13, 0.25), 13));
  EXPECT_FALSE(passes::any_length(at(8), 8, at(8), 8));
  EXPECT_FALSE(passes::any_length(at(8), 8, at(13), 15));  // 5 more for 7 steps
}

}  // namespace
}  // namespace weft::any_length_test
