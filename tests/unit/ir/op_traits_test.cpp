// Traits of ops.def against the interpreter: what a row says of its op's elements must be true. Every op whose row says
// something is tried.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "interpreter/interpreter.h"
#include "ir/text/parser.h"

namespace weft::op_traits_test {
namespace {

using interpreter::Array;
using ir::Elements;
using ir::Op;
using ir::OpCode;
using Indices = std::vector<int64_t>;
using Values = std::vector<double>;

/// An op of each code that some test asks for, on %a and %b of f32[3,4].
const std::map<OpCode, std::string> kOps = {
    {OpCode::kConstant, "constant {value = 2.5} : f32[2,3]"},
    {OpCode::kCopy, "copy %a"},
    {OpCode::kStopGradient, "stop_gradient %a"},
    {OpCode::kCast, "cast %a : f64[3,4]"},
    {OpCode::kCustomVjp, "custom_vjp %b, %a {inputs = 1, refuses = \"no\"} : f32[3,4]"},
    {OpCode::kNeg, "neg %a"},
    {OpCode::kAdd, "add %a, %b"},
    {OpCode::kSub, "sub %a, %b"},
    {OpCode::kBroadcast, "broadcast %a {dims = [0, 2]} : f32[3,2,4]"},
    {OpCode::kReshape, "reshape %a : f32[2,6]"},
    {OpCode::kTranspose, "transpose %a {perm = [1, 0]}"},
    {OpCode::kSlice, "slice %a {dim = 1, start = 1, limit = 3}"},
    {OpCode::kPad, "pad %a {dim = 0, low = 1, high = 2}"},
    {OpCode::kConcat, "concat %a, %b {dim = 1}"},
    {OpCode::kReverse, "reverse %a {dim = 1}"},
};

/// The program of one op, and a function that runs it on two operands.
struct Tried {
  ir::Program program;
  std::function<Array(const Values& a, const Values& b)> run;

  const Op& op() const { return program.body.ops[0]; }
};

Tried tried(const std::string& text) {
  Tried result{ir::parse("program @p(%a: f32[3,4], %b: f32[3,4]) { %r = " + text + " return %r }"), {}};
  result.run = [program = result.program](const Values& a, const Values& b) {
    const std::vector<Array> inputs = {Array::of(DType::kF32, {3, 4}, a), Array::of(DType::kF32, {3, 4}, b)};
    return interpreter::evaluate(program, inputs)[0];
  };
  return result;
}

/// 12 different numbers, none of them 0.
Values numbers(double first) {
  Values values(12);
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i);
  return values;
}

/// Calls `test` with each op whose traits `which` picks. An op that kOps lacks is an error.
void for_each_op(const std::function<bool(const ir::OpTraits&)>& which,
                 const std::function<void(const ir::OpTraits&, const Tried&)>& test) {
  for (size_t i = 0; i < ir::kOpCount; ++i) {
    const auto code = static_cast<OpCode>(i);
    const ir::OpTraits& traits = ir::traits_of(code);
    if (!which(traits)) continue;
    SCOPED_TRACE(ir::info(code).name);
    const auto found = kOps.find(code);
    ASSERT_NE(found, kOps.end()) << "a trait of this op is tried by no program of this test";
    test(traits, tried(found->second));
  }
}

/// The place in a row-major array of these sizes, and the indices of a place.
int64_t place_of(const Indices& at, const Indices& sizes) {
  int64_t place = 0;
  for (size_t i = 0; i < sizes.size(); ++i) place = place * sizes[i] + at[i];
  return place;
}

Indices indices_of(int64_t place, const Indices& sizes) {
  Indices at(sizes.size());
  for (size_t i = sizes.size(); i-- > 0; place /= sizes[i]) at[i] = place % sizes[i];
  return at;
}

/// Which element of the operand is at `place` of the result, as the trait says.
int64_t source_of(Elements elements, const Op& op, int64_t place, const Indices& from, const Indices& to) {
  Indices at = indices_of(place, to);
  Indices source = at;
  const auto dim = static_cast<size_t>(op.attr_or<int64_t>("dim", 0));
  const auto numbers = [&](const char* name) { return op.attr_or<std::vector<int64_t>>(name, {}); };
  switch (elements) {
    case Elements::kComputed:
    case Elements::kSame:
      break;
    case Elements::kRange:
      source[dim] += op.attr<int64_t>("start");
      break;
    case Elements::kRepeated:
      source.clear();
      for (int64_t each : numbers("dims")) source.push_back(at[static_cast<size_t>(each)]);
      break;
    case Elements::kReshaped:
      return place;
    case Elements::kPermuted:
      for (size_t i = 0; i < at.size(); ++i) source[static_cast<size_t>(numbers("perm")[i])] = at[i];
      break;
    case Elements::kReversed:
      source[dim] = from[dim] - 1 - at[dim];
      break;
  }
  return place_of(source, from);
}

TEST(OpTraits, ElementsAreWhereTheTraitSays) {
  for_each_op([](const ir::OpTraits& traits) { return traits.elements != Elements::kComputed; },
              [](const ir::OpTraits& traits, const Tried& each) {
                const Values a = numbers(1);
                const Array result = each.run(a, a);
                const Values values = result.to_doubles();
                for (size_t i = 0; i < values.size(); ++i) {
                  const auto place = static_cast<int64_t>(i);
                  const int64_t source = source_of(traits.elements, each.op(), place, {3, 4}, result.sizes);
                  EXPECT_EQ(values[i], a[static_cast<size_t>(source)]) << "element " << i;
                }
              });
}

TEST(OpTraits, ConversionsAndMarksLeaveNumbersAsTheyAre) {
  for_each_op([](const ir::OpTraits& traits) { return traits.converts || traits.marks != ir::Marks::kNothing; },
              [](const ir::OpTraits&, const Tried& each) {
                EXPECT_EQ(each.run(numbers(1), numbers(100)).to_doubles(), numbers(1));
              });
}

TEST(OpTraits, LinearOpsTakeSumsApart) {
  for_each_op([](const ir::OpTraits& traits) { return traits.is_linear; },
              [](const ir::OpTraits&, const Tried& each) {
                const Values a = numbers(1), b = numbers(20), c = numbers(-40), d = numbers(-3);
                Values ac, bd;
                std::ranges::transform(a, c, std::back_inserter(ac), std::plus<>());
                std::ranges::transform(b, d, std::back_inserter(bd), std::plus<>());
                Values sum;
                std::ranges::transform(each.run(a, b).to_doubles(), each.run(c, d).to_doubles(),
                                       std::back_inserter(sum), std::plus<>());
                EXPECT_EQ(each.run(ac, bd).to_doubles(), sum);
              });
}

TEST(OpTraits, SumsAndDifferencesAreThat) {
  for_each_op([](const ir::OpTraits& traits) { return traits.adds != ir::Adds::kNo; },
              [](const ir::OpTraits& traits, const Tried& each) {
                const Values a = numbers(30), b = numbers(2), result = each.run(a, b).to_doubles();
                const double sign = traits.adds == ir::Adds::kSum ? 1 : -1;
                for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(result[i], a[i] + sign * b[i]);
              });
}

TEST(OpTraits, JoinsAreTheirOperandsInTurn) {
  for_each_op([](const ir::OpTraits& traits) { return traits.is_join; },
              [](const ir::OpTraits&, const Tried& each) {
                const Values a = numbers(1), b = numbers(100);
                const Array result = each.run(a, b);
                ASSERT_EQ(each.op().attr<int64_t>("dim"), 1);
                ASSERT_EQ(result.sizes, (Indices{3, 8}));
                Values expected;
                for (int64_t row = 0; row < 3; ++row)
                  for (const Values* part : {&a, &b})
                    expected.insert(expected.end(), part->begin() + 4 * row, part->begin() + 4 * (row + 1));
                EXPECT_EQ(result.to_doubles(), expected);
              });
}

TEST(OpTraits, WhatSpreadsHasAllOfItsOperandAndNothingElse) {
  for_each_op([](const ir::OpTraits& traits) { return traits.spreads; },
              [](const ir::OpTraits&, const Tried& each) {
                const Values a = numbers(1), result = each.run(a, numbers(100)).to_doubles();
                const std::optional<double> number = ir::constant_value(each.op());
                for (double value : result)
                  EXPECT_TRUE(number ? value == *number : value == 0 || std::ranges::find(a, value) != a.end());
                if (number) return;
                EXPECT_GE(result.size(), a.size());
                for (double value : a) EXPECT_NE(std::ranges::find(result, value), result.end());
              });
}

}  // namespace
}  // namespace weft::op_traits_test
