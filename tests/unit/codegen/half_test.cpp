// f16 and bf16 in machine code: every conversion, over all numbers of 16 bits and f32 and f64 numbers on both sides of
// every place where rounding turns, bit for bit as the interpreter has them.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/engine.h"
#include "interpreter/interpreter.h"
#include "interpreter/numeric.h"
#include "ir/text/parser.h"

namespace weft::half_test {
namespace {

using interpreter::Array;

/// Elements of the type from their bits, as rows of `columns`; an incomplete last row is dropped.
template <typename Bits>
Array from_bits(DType dtype, const std::vector<Bits>& bits, int64_t columns) {
  auto rows = static_cast<int64_t>(bits.size()) / columns;
  Array array(dtype, {rows, columns});
  std::memcpy(array.bytes.data(), bits.data(), array.bytes.size());
  return array;
}

std::vector<uint16_t> all_halves() {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

/// Each pattern of the leading bits, followed by bits at, next to and half way between two numbers of so many bits.
std::vector<uint32_t> around_ties(int leading) {
  const int rest = 32 - leading;
  const uint32_t half = 1u << (rest - 1);
  std::vector<uint32_t> all;
  for (uint32_t high = 0; high < 1u << leading; ++high)
    for (uint32_t low : {0u, 1u, half - 1, half, half + 1, 2 * half - 1}) all.push_back(high << rest | low);
  return all;
}

/// f64 numbers at and next to f32 ones.
std::vector<uint64_t> around_floats() {
  std::vector<uint64_t> all;
  for (uint32_t bits : around_ties(14)) {
    auto wide = std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(bits)));
    for (uint64_t each : {wide, wide + 1, wide - 1, wide + (1u << 28)}) all.push_back(each);
  }
  return all;
}

template <typename T>
std::vector<T> integers() {
  std::vector<T> all;
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(T)); ++shift)
    for (int64_t offset = -70; offset <= 70; ++offset) {
      uint64_t value = (uint64_t{1} << shift) + static_cast<uint64_t>(offset);
      all.push_back(static_cast<T>(value));
      all.push_back(static_cast<T>(uint64_t{0} - value));
    }
  return all;
}

Array numbers_of(DType dtype, int64_t columns) {
  switch (dtype) {
    case DType::kF32: {
      std::vector<uint32_t> all = around_ties(16);
      std::vector<uint32_t> finer = around_ties(19);  // f16 ends there
      all.insert(all.end(), finer.begin(), finer.end());
      return from_bits(dtype, all, columns);
    }
    case DType::kF64:
      return from_bits(dtype, around_floats(), columns);
    case DType::kI32:
      return from_bits(dtype, integers<uint32_t>(), columns);
    case DType::kI64:
      return from_bits(dtype, integers<uint64_t>(), columns);
    case DType::kBool:
      return from_bits(dtype, std::vector<uint8_t>{0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1}, columns);
    default:
      return from_bits(dtype, all_halves(), columns);
  }
}

std::vector<Array> run_engine(const std::string& text, std::vector<Array>& inputs) {
  auto executable = engine::compile(text);
  std::vector<runtime::TensorRef> from, to;
  for (Array& input : inputs) from.push_back({input.bytes.data(), input.dtype, input.sizes});
  std::vector<Array> outputs;
  for (ir::ValueId result : executable->program().body.results)
    outputs.emplace_back(executable->program().type(result).dtype, inputs[0].sizes);
  for (Array& output : outputs) to.push_back({output.bytes.data(), output.dtype, output.sizes});
  size_t fallbacks = engine::stats().fallbacks.size();
  executable->run(from, to, runtime::own_team());
  EXPECT_EQ(engine::stats().fallbacks.size(), fallbacks) << text;
  return outputs;
}

struct Conversion {
  DType from, to;
};

class HalfConversion : public ::testing::TestWithParam<Conversion> {};

TEST_P(HalfConversion, IsTheInterpreters) {
  auto [from, to] = GetParam();
  for (int64_t columns : {16, 5, 33}) {
    if (from == DType::kBool && columns == 33) continue;
    std::string text = fmt::format("program @p(%x: {0}[N,{2}]) {{ %y = cast %x : {1}[N,{2}] return %y }}",
                                   name_of(from), name_of(to), columns);
    std::vector<Array> inputs = {numbers_of(from, columns)};
    std::vector<Array> wanted = interpreter::evaluate(ir::parse(text), inputs);
    std::vector<Array> found = run_engine(text, inputs);
    auto size = static_cast<size_t>(size_of(to));
    for (size_t i = 0; i < wanted[0].bytes.size(); i += size)
      ASSERT_EQ(std::memcmp(&found[0].bytes[i], &wanted[0].bytes[i], size), 0)
          << "element " << i / size << " is " << found[0].to_doubles()[i / size] << " instead of "
          << wanted[0].to_doubles()[i / size] << ", from " << inputs[0].to_doubles()[i / size];
  }
}

std::vector<Conversion> conversions() {
  std::vector<Conversion> all = {{DType::kF16, DType::kBF16}, {DType::kBF16, DType::kF16}};
  for (DType half : {DType::kF16, DType::kBF16})
    for (DType other : {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kBool}) {
      all.push_back({half, other});
      all.push_back({other, half});
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, HalfConversion, ::testing::ValuesIn(conversions()), [](const auto& test) {
  return fmt::format("{}_to_{}", name_of(test.param.from), name_of(test.param.to));
});

/// A cast with excess_precision whose result goes to memory rounds as any other, except denormals; one that only
/// arithmetic reads doesn't round.
class LooseCasts : public ::testing::TestWithParam<DType> {};

TEST_P(LooseCasts, RoundWhatIsStored) {
  std::vector<Array> inputs = {numbers_of(DType::kF32, 33)};
  const auto text = [&](std::string_view attributes) {
    return fmt::format(
        "program @p(%x: f32[N,33]) {{ %h = cast %x {1} : {0}[N,33] %y = cast %h : f32[N,33] return %h, %y }}",
        name_of(GetParam()), attributes);
  };
  const std::vector<Array> wanted = run_engine(text(""), inputs);
  const std::vector<Array> found = run_engine(text("{excess_precision = true}"), inputs);
  const std::vector<double> x = inputs[0].to_doubles();
  for (size_t result : {0, 1}) {
    const std::vector<double> a = found[result].to_doubles(), b = wanted[result].to_doubles();
    const bool may_be_exact = result == 1;  // a reader, which may take the number as it was
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(a[i] == b[i] || (may_be_exact && a[i] == x[i]) || (std::isnan(b[i]) && std::isnan(a[i])) ||
                  (a[i] == 0 && std::abs(x[i]) < 0x1p-126))
          << "result " << result << " of " << x[i] << " is " << a[i] << " instead of " << b[i];
  }
}

TEST_P(LooseCasts, DontRoundWhatIsComputedWith) {
  std::vector<Array> inputs = {numbers_of(DType::kF32, 33)};
  const auto text = fmt::format(
      "program @p(%x: f32[N,33]) {{ %h = cast %x {{excess_precision = true}} : {}[N,33] %y = cast %h : f32[N,33] "
      "%z = neg %y : f32[N,33] return %z }}",
      name_of(GetParam()));
  const std::vector<double> x = inputs[0].to_doubles(), z = run_engine(text, inputs)[0].to_doubles();
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_TRUE(z[i] == -x[i] || (std::isnan(x[i]) && std::isnan(z[i]))) << x[i] << " became " << z[i];
}

/// A number that is only read rounded to bf16 may be computed to no more than that: within 2^-12, or 0 where it is less
/// than the smallest normal number. NaN, infinities and signs are as ever. A number that something else reads too is as
/// right as in f32.
TEST(LooseCast, OfAnActivation) {
  std::vector<Array> inputs = {numbers_of(DType::kF32, 33)};
  const std::vector<double> x = inputs[0].to_doubles();
  for (std::string_view op : {"tanh", "sigmoid"})
    for (bool is_read : {false, true}) {
      const std::string text = fmt::format(
          "program @p(%x: f32[N,33]) {{ %a = {} %x : f32[N,33] %h = cast %a {{excess_precision = true}} : bf16[N,33] "
          "%y = cast %h : f32[N,33] %n = neg %{} : f32[N,33] return %n }}",
          op, is_read ? "a" : "y");
      const std::vector<double> found = run_engine(text, inputs)[0].to_doubles();
      const double bound = is_read ? 0x1.5p-22 : 0x1p-12;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = op == "tanh" ? std::tanh(x[i]) : 1 / (1 + std::exp(-x[i]));
        ASSERT_TRUE(std::isnan(exact) ? std::isnan(found[i])
                                      : std::abs(found[i] + exact) <= std::abs(exact) * bound + 0x1p-125)
            << op << " of " << x[i] << " is " << -found[i] << " instead of " << exact;
        ASSERT_TRUE(std::isnan(exact) || exact == 0 || found[i] == 0 || std::signbit(found[i]) != std::signbit(exact));
        ASSERT_TRUE(std::isnan(exact) || std::abs(found[i]) <= 1 + 0x1p-12);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, LooseCasts, ::testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

/// An op of one or two operands that f32 computes exactly or rounds correctly is the interpreter's; others may be
/// rounded to the neighbour where f32 was an ulp off.
class HalfArithmetic : public ::testing::TestWithParam<DType> {};

TEST_P(HalfArithmetic, RoundsOnce) {
  std::string type = fmt::format("{}[N,37]", name_of(GetParam()));
  std::string names, text = fmt::format("program @p(%x: {0}, %y: {0}) {{\n", type);
  auto add = [&](std::string_view op, std::string_view operands, std::string_view result) {
    text += fmt::format("%{0} = {0} {1} : {2}\n", op, operands, result);
    names += (names.empty() ? "%" : ", %") + std::string(op);
  };
  for (const char* op : {"copy", "neg", "abs", "sign", "relu", "floor", "sqrt", "rsqrt", "exp", "tanh", "sigmoid"})
    add(op, "%x", type);
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum"}) add(op, "%x, %y", type);
  add("lt", "%x, %y", "bool[N,37]");
  add("select", "%lt, %x, %y", type);
  text += "return " + names + " }";

  std::vector<uint16_t> bits = all_halves(), other = bits;
  std::shuffle(other.begin(), other.end(), std::mt19937_64(1));
  std::vector<Array> inputs = {from_bits(GetParam(), bits, 37), from_bits(GetParam(), other, 37)};
  ir::Program program = ir::parse(text);
  std::vector<Array> wanted = interpreter::evaluate(program, inputs);
  std::vector<Array> found = run_engine(text, inputs);
  for (size_t result = 0; result < wanted.size(); ++result) {
    const std::string& name = program.values[program.body.results[result]].name;
    bool rough = name == "exp" || name == "tanh" || name == "sigmoid";
    double ulp = GetParam() == DType::kBF16 ? 0x1p-7 : 0x1p-10;
    std::vector<double> x = inputs[0].to_doubles(), a = found[result].to_doubles(), b = wanted[result].to_doubles();
    int64_t off = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      ++off;
      ASSERT_TRUE(rough && std::abs(a[i] - b[i]) <= ulp * std::abs(b[i]) + 0x1p-24)
          << name << " of " << x[i] << " is " << a[i] << " instead of " << b[i];
    }
    EXPECT_LE(off, 50) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HalfArithmetic, ::testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace weft::half_test
