// Sums of pads, as the gradients of slices are added up: canonicalise's programs for them against the interpreter.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/text/printer.h"
#include "ir/verifier.h"
#include "passes/pass_runner.h"
#include "random_program.h"

namespace weft::pad_sums_test {
namespace {

using ir::Builder;
using ir::OpCode;
using ir::ValueId;

constexpr int64_t kSize = 24;
constexpr std::string_view kPasses[] = {"canonicalise", "dce"};

/// The input put at start..limit-1 of a longer vector.
ValueId padded(Builder& builder, int64_t size, int64_t start, int64_t limit) {
  const ValueId x = builder.input({DType::kF64, {limit - start}});
  return builder.emit(OpCode::kPad, {x}, {{"dim", int64_t{0}}, {"low", start}, {"high", size - limit}});
}

int64_t count(const ir::Program& program, OpCode code) {
  return std::ranges::count(program.body.ops, code, &ir::Op::code);
}

TEST(PadSumsTest, AllSlicesInAnyOrderAreOneConcatenation) {
  std::mt19937 random(3);
  for (int64_t parts : {2, 3, 70, 200}) {
    ir::Program program;
    Builder builder(program, program.body);
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < parts; ++i) starts.push_back(i);
    std::ranges::shuffle(starts, random);
    ValueId sum = padded(builder, parts, starts[0], starts[0] + 1);
    for (int64_t i = 1; i < parts; ++i) {
      const int64_t start = starts[static_cast<size_t>(i)];
      sum = builder.add(sum, padded(builder, parts, start, start + 1));
    }
    builder.ret({sum});
    passes::run_passes(program, kPasses);
    ASSERT_EQ(program.body.ops.size(), 1) << ir::print(program);
    EXPECT_EQ(program.body.ops[0].code, OpCode::kConcat);
    EXPECT_EQ(std::ssize(program.body.ops[0].operands), parts);
  }
}

TEST(PadSumsTest, WhatLiesApartIsAddedUp) {
  ir::Program program;
  Builder builder(program, program.body);
  ValueId sum = builder.add(padded(builder, 9, 0, 2), padded(builder, 9, 5, 7));
  sum = builder.add(sum, padded(builder, 9, 2, 4));
  sum = builder.add(sum, padded(builder, 9, 1, 3));
  builder.ret({builder.add(sum, padded(builder, 9, 7, 9))});
  passes::run_passes(program, kPasses);
  EXPECT_EQ(count(program, OpCode::kConcat), 2) << "of 0..3 and of 5..8" << ir::print(program);
  EXPECT_EQ(count(program, OpCode::kPad), 3) << ir::print(program);
  EXPECT_EQ(count(program, OpCode::kAdd), 2) << ir::print(program);
}

/// A random tree of additions of pads and, now and then, of something else; sums are read more than once at times.
ir::Program random_sum(std::mt19937& random) {
  auto up_to = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  ir::Program program;
  Builder builder(program, program.body);
  std::vector<ValueId> values;
  for (int64_t leaves = 2 + up_to(8); leaves > 0; --leaves) {
    const int64_t start = up_to(5) * 4, limit = start + 4 * (1 + up_to((kSize - start) / 4 - 1));
    values.push_back(up_to(9) == 0 ? builder.input({DType::kF64, {kSize}}) : padded(builder, kSize, start, limit));
  }
  std::vector<ValueId> results;
  while (values.size() > 1) {
    const size_t a = up_to(2) == 0 ? static_cast<size_t>(up_to(std::ssize(values) - 2)) : 0;
    const ValueId sum = builder.add(values[a], values[a + 1]);
    if (up_to(7) == 0) results.push_back(sum);
    values[a] = sum;
    values.erase(values.begin() + static_cast<int64_t>(a) + 1);
  }
  results.push_back(values[0]);
  builder.ret(std::move(results));
  return program;
}

TEST(PadSumsTest, RandomSumsStayWhatTheyAre) {
  std::mt19937 random(4);
  for (uint64_t round = 0; round < 500; ++round) {
    ir::Program program = random_sum(random);
    SCOPED_TRACE(ir::print(program));
    const testing::Arrays inputs = testing::random_inputs(program, {}, round);
    const testing::Arrays expected = interpreter::evaluate(program, inputs);
    passes::run_passes(program, kPasses);
    SCOPED_TRACE(ir::print(program));
    ASSERT_NO_THROW(ir::verify(program));
    ASSERT_LE(testing::difference(interpreter::evaluate(program, inputs), expected), 1e-12);
  }
}

}  // namespace
}  // namespace weft::pad_sums_test
