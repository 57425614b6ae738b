#include "passes/differentiation/own_derivatives.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/text/parser.h"
#include "ir/text/printer.h"

namespace weft::passes::own_derivatives_test {
namespace {

/// A derivative (x, gradient) -> gradient, its last line giving %r.
ir::Program derivative(const std::string& lines) {
  return ir::parse("program @d(%x: f32[B], %g: f32[B]) {\n" + lines + "\n return %r }");
}

bool vanish(const std::string& lines) { return vanishes(derivative(lines), 1); }
bool linear(const std::string& lines) { return is_linear(derivative(lines), 1); }

TEST(OwnDerivatives, VanishWithTheGradient) {
  EXPECT_TRUE(vanish("%r = mul %g, %x : f32[B]"));
  EXPECT_TRUE(vanish("%r = div %g, %x : f32[B]"));
  EXPECT_TRUE(vanish("%c = constant {value = 0.5} : f32[B] %r = minimum %g, %c : f32[B]"));
  EXPECT_TRUE(vanish("%r = tanh %g : f32[B]"));
  // The divisor can't be zero: it is a norm plus a positive number.
  EXPECT_TRUE(
      vanish("%q = mul %g, %g : f32[B] %s = reduce_sum %q {dims = [0]} : f32[] %n = sqrt %s : f32[]"
             "%e = constant {value = 1e-6} : f32[] %d = add %n, %e : f32[]"
             "%w = broadcast %d {dims = []} : f32[B] %r = div %g, %w : f32[B]"));
}

TEST(OwnDerivatives, MayNotVanish) {
  EXPECT_FALSE(vanish("%r = add %g, %x : f32[B]"));
  EXPECT_FALSE(vanish("%c = constant {value = 0.5} : f32[B] %r = maximum %g, %c : f32[B]"));
  EXPECT_FALSE(vanish("%r = exp %g : f32[B]"));
  EXPECT_FALSE(
      vanish("%h = constant {value = 0.5} : f32[B] %i = cast %h : i32[B] %z = constant {value = 0} : i32[B]"
             "%c = ne %i, %z : bool[B] %r = select %c, %g, %x : f32[B]"))
      << "a half is no integer";
  EXPECT_FALSE(vanish("%r = div %x, %g : f32[B]"));
  EXPECT_FALSE(vanish("%r = div %g, %g : f32[B]")) << "0 / 0";
  EXPECT_FALSE(vanish("%l = log %g : f32[B] %r = mul %g, %l : f32[B]")) << "0 times infinity";
}

TEST(OwnDerivatives, AreLinear) {
  EXPECT_TRUE(linear("%r = mul %g, %x : f32[B]"));
  EXPECT_TRUE(linear("%a = mul %x, %g : f32[B] %r = sub %a, %g : f32[B]"));
  EXPECT_TRUE(linear("%z = constant {value = 0.0} : f32[B] %c = gt %x, %z : bool[B] %r = select %c, %g, %z : f32[B]"));
  EXPECT_TRUE(linear("%z = constant {value = 0.0} : f32[] %r = broadcast %z {dims = []} : f32[B]")) << "nothing at all";
  EXPECT_TRUE(linear("%s = reduce_sum %g {dims = [0]} : f32[] %r = broadcast %s {dims = []} : f32[B]"));
}

TEST(OwnDerivatives, AreNotLinear) {
  EXPECT_FALSE(linear("%r = add %g, %x : f32[B]")) << "affine";
  EXPECT_FALSE(linear("%r = mul %g, %g : f32[B]"));
  EXPECT_FALSE(linear("%c = constant {value = 0.5} : f32[B] %r = minimum %g, %c : f32[B]"));
  EXPECT_FALSE(linear("%r = div %x, %g : f32[B]"));
  EXPECT_FALSE(linear("%z = constant {value = 0.0} : f32[B] %c = gt %g, %z : bool[B] %r = select %c, %g, %z : f32[B]"));
}

TEST(OwnDerivatives, WithoutACotangent) {
  ir::Program program = ir::parse(
      "program @d(%x: f32[B], %g: f32[B], %h: f32[B]) { %a = div %g, %x : f32[B] %b = mul %a, %x : f32[B]"
      "%c = mul %h, %x : f32[B] %r = add %b, %c : f32[B] return %a, %b, %r }");
  program = without_cotangents(program, {false, true, false});
  const std::string zero = "constant {value = 0.0} : f32[B]";
  EXPECT_EQ(ir::print(program, true), ir::print(ir::parse("program @d(%x: f32[B], %g: f32[B], %h: f32[B]) { %z = " +
                                                          zero + " %a = " + zero + " %b = " + zero +
                                                          " %c = mul %h, %x : f32[B] %r = add %b, %c : f32[B]"
                                                          " return %a, %b, %r }"),
                                                true));
}

}  // namespace
}  // namespace weft::passes::own_derivatives_test
