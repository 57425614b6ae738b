// Weights of 8 bits: which products read the bytes, and which have panels of f32.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/settings.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "lowered.h"
#include "machine.h"
#include "native_run.h"
#include "planning/cpu/prepack.h"
#include "random_program.h"
#include "runtime/kernels/packs.h"
#include "runtime/plan/run.h"

namespace weft::i8_weights_test {
namespace {

/// A product of all steps, one of each step, and one by weights that aren't transposed. `weights`: i8, or f32.
std::string program_of(const std::string& weights) {
  const std::string make = weights == "i8" ? "cast" : "copy", d = weights;
  return "program @p(%x: f32[T,B,37], %h0: f32[B,21], %w: " + d + "[63,37], %u: " + d + "[63,21], %v: " + d +
         "[21,37]) {\n" + "  %wf = " + make + " %w : f32[63,37]\n  %uf = " + make +
         " %u : f32[63,21]\n  %vf = " + make + R"( %v : f32[21,37]
  %c = constant {value = 0.002} : f32[T,B,63]
  %q = matmul %x, %wf {transpose_b = true} : f32[T,B,63]
  %px = mul %q, %c : f32[T,B,63]
  %d = constant {value = 0.002} : f32[B,63]
  %hT, %ys = scan length T carry(%h = %h0) xs(%p = %px) {
    %r = matmul %h, %uf {transpose_b = true} : f32[B,63]
    %m = mul %r, %d : f32[B,63]
    %s = add %p, %m : f32[B,63]
    %i = slice %s {dim = 1, start = 0, limit = 21} : f32[B,21]
    %j = slice %s {dim = 1, start = 21, limit = 42} : f32[B,21]
    %k = slice %s {dim = 1, start = 42, limit = 63} : f32[B,21]
    %a = mul %i, %j : f32[B,21]
    %b = add %a, %k : f32[B,21]
    %n = tanh %b : f32[B,21]
    yield carry(%n) ys(%n)
  } : f32[B,21], f32[T,B,21]
  %z = matmul %ys, %vf : f32[T,B,37]
  return %z, %hT
})";
}

/// Random floats, and random weights from -127 to 127 in the type that the program has.
std::vector<interpreter::Array> inputs_of(const ir::Program& program, const ir::Bindings& bindings) {
  std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
  std::mt19937_64 random(5);
  std::uniform_int_distribution<int> bytes(-127, 127);
  for (size_t i = 2; i < inputs.size(); ++i) {
    std::vector<double> values = inputs[i].to_doubles();
    for (double& value : values) value = bytes(random);
    inputs[i] = interpreter::Array::of(inputs[i].dtype, inputs[i].sizes, values);
  }
  return inputs;
}

class I8Weights : public ::testing::TestWithParam<const char*> {
 protected:
  I8Weights() {
    if (*GetParam() != 0) mutable_settings().isa = GetParam();
  }
  ~I8Weights() override {
    mutable_settings().isa = isa_;
    mutable_settings().pack.clear();
    mutable_settings().share_all = false;
  }

 private:
  std::string isa_ = settings().isa;
};

const std::vector<ir::Bindings> kSizes = {{{"T", 0}, {"B", 1}}, {{"T", 1}, {"B", 1}},  {{"T", 9}, {"B", 1}},
                                          {{"T", 3}, {"B", 2}}, {{"T", 2}, {"B", 40}}, {{"T", 30}, {"B", 3}},
                                          {{"T", 2}, {"B", 0}}};

TEST_P(I8Weights, GiveTheInterpretersResults) {
  const std::string text = program_of("i8");
  const ir::Program program = ir::parse(text);
  for (const ir::Bindings& bindings : kSizes) {
    const std::vector<interpreter::Array> inputs = inputs_of(program, bindings);
    const std::vector<interpreter::Array> expected = interpreter::evaluate(program, inputs);
    for (const char* pack : {"", "never", "always", "way"})
      for (const int64_t threads : {1, 3}) {
        mutable_settings().pack = pack;
        mutable_settings().share_all = threads > 1;
        const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads));
        for (size_t i = 0; i < expected.size(); ++i) {
          const std::vector<double> x = found[i].to_doubles(), y = expected[i].to_doubles();
          // The error of sums of 21 products of up to 127.
          for (size_t j = 0; j < y.size(); ++j) ASSERT_NEAR(x[j], y[j], 2e-3) << pack << ", result " << i;
        }
      }
  }
}

TEST_P(I8Weights, OnPanelsGiveTheBitsOfF32) {
  const std::string text = program_of("i8"), plain = program_of("f32");
  if (runtime::byte_products(runtime::active_isa()) == runtime::ByteProducts::kFaster) GTEST_SKIP() << "reads bytes";
  for (const ir::Bindings& bindings : kSizes) {
    const std::vector<interpreter::Array> bytes = inputs_of(ir::parse(text), bindings);
    const std::vector<interpreter::Array> floats = inputs_of(ir::parse(plain), bindings);
    for (const char* pack : {"always", "way"}) {
      mutable_settings().pack = pack;
      const auto found = testing::run_native(text, bytes, bindings, runtime::own_team(1));
      const auto expected = testing::run_native(plain, floats, bindings, runtime::own_team(1));
      for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].to_doubles(), expected[i].to_doubles()) << pack;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, I8Weights, ::testing::Values("", "generic"), [](const auto& test) {
  return *test.param ? std::string(test.param) : std::string("this_machine");
});

std::string prepacked(runtime::ByteProducts bytes) {
  ir::Program program = ir::parse(program_of("i8"));
  planning::prepack(program, bytes);
  return ir::print(program);
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(I8Prepack, BytesAreReadWhereTheProcessorMultipliesThem) {
  const std::string fast = prepacked(runtime::ByteProducts::kFaster);
  EXPECT_EQ(count(fast, "matmul_rows"), 2);
  EXPECT_EQ(count(fast, "= pack %v {groups = 1, widen = true"), 1) << fast;
  for (const auto bytes : {runtime::ByteProducts::kFewRowsOnly, runtime::ByteProducts::kSlower}) {
    const std::string slow = prepacked(bytes);
    EXPECT_EQ(count(slow, "matmul_rows"), 0);
    EXPECT_EQ(count(slow, "widen = true"), 3) << slow;
  }
}

/// The packs of program_of's programs that are left out for sizes T and B.
int64_t left_out(int64_t steps, int64_t batch) {
  const testing::Lowered lowered(program_of("i8"));
  std::vector<int64_t> symbols;
  for (const std::string& symbol : lowered.schedule.plan.symbols) symbols.push_back(symbol == "T" ? steps : batch);
  return std::ssize(runtime::left_out_packs(lowered.schedule.plan, symbols));
}

TEST(I8Packs, StepsOfARowOrTwoReadBytesHoweverManyThereAre) {
  testing::on_each_machine([](const testing::Machine& machine) {
    const runtime::ByteProducts bytes = runtime::byte_products(machine.isa);
    if (bytes == runtime::ByteProducts::kFaster) return;  // products of bytes have no packs
    const int64_t of_steps = bytes == runtime::ByteProducts::kFewRowsOnly ? 1 : 0;
    EXPECT_EQ(left_out(1, 1), 3);
    EXPECT_EQ(left_out(100, 1), of_steps);  // those of all steps together have panels
    EXPECT_EQ(left_out(100, 2), of_steps);
    EXPECT_EQ(left_out(100, 3), 0);
    EXPECT_EQ(left_out(1, 100), 0);
  });
}

}  // namespace
}  // namespace weft::i8_weights_test
