// exp, log, expm1, tanh and sigmoid as generated, against the C library's in double precision. With
// WEFT_TEST_ALL_FLOATS=1 every float is tried (some minutes); otherwise every 61st, and all special ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>

#include "base/error.h"
#include "engine/engine.h"

namespace weft::vector_math_test {
namespace {

/// Distance in units in the last place of the correctly rounded result (of the smallest normal's for subnormal ones);
/// zeros of different signs are far apart.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  auto rounded = static_cast<float>(want);
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : 1e9;
  if (!std::isfinite(rounded) || !std::isfinite(got)) return 1e9;
  int exponent = std::max(std::ilogb(rounded == 0 ? std::numeric_limits<float>::denorm_min() : rounded), -126);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

/// Distance in units of 2^-12 of the exact result, or of 2^-125 where that is more.
double coarse_units(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  if (std::isnan(got) || std::abs(got) > 1 + 0x1p-12 || (got != 0 && std::signbit(got) != std::signbit(want)))
    return 1e9;
  return std::abs(static_cast<double>(got) - want) / std::max(std::abs(want) * 0x1p-12, 0x1p-125);
}

struct Worst {
  double error = 0;
  float at = 0;
};

using Reference = std::function<double(double)>;
using Distance = double (*)(float got, double want);

Worst worst_error_of_program(const std::string& text, const Reference& reference, Distance distance,
                             uint64_t every = 61) {
  auto executable = engine::compile(text);
  const char* all = std::getenv("WEFT_TEST_ALL_FLOATS");
  const uint64_t stride = all && *all == '1' ? 1 : every;
  constexpr uint64_t kChunk = 1 << 20;
  std::vector<float> x, y;
  Worst worst;
  runtime::SerialTeam team;
  auto flush = [&] {
    y.assign(x.size(), 0);
    std::vector<int64_t> sizes{static_cast<int64_t>(x.size())};
    runtime::TensorRef in{x.data(), DType::kF32, sizes}, out{y.data(), DType::kF32, sizes};
    executable->run({&in, 1}, {&out, 1}, team);
    for (size_t i = 0; i < x.size(); ++i) {
      double error = distance(y[i], reference(x[i]));
      if (error > worst.error) worst = {error, x[i]};
    }
    x.clear();
  };
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += stride) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    if (x.size() == kChunk) flush();
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (float special : {0.0f, -0.0f, inf, -inf, NAN, 88.72f, 88.73f, -87.4f, -103.9f, -104.1f, 0.625f, 9.01f, 1e-40f})
    x.push_back(special);
  flush();
  return worst;
}

Worst worst_error(const char* name, const Reference& reference, uint64_t every = 61) {
  return worst_error_of_program(fmt::format("program @{0}(%x: f32[N]) {{ %y = {0} %x : f32[N] return %y }}", name),
                                reference, ulps, every);
}

/// The distance for a result that only a loose cast to bf16 reads; the cast's reader takes it unrounded.
Worst worst_coarse_error(const char* name, const Reference& reference) {
  const std::string text = fmt::format(
      "program @{0}(%x: f32[N]) {{ %a = {0} %x : f32[N] %h = cast %a {{excess_precision = true}} : bf16[N] "
      "%b = cast %h : f32[N] %n = neg %b : f32[N] return %n }}",
      name);
  return worst_error_of_program(text, [&](double x) { return -reference(x); }, coarse_units);
}

void expect_within(double ulp, const Worst& worst) {
  std::printf("worst %.3f ulp at %.9g\n", worst.error, static_cast<double>(worst.at));
  EXPECT_LE(worst.error, ulp) << "at " << worst.at;
}

TEST(VectorMath, ExpIsWithinTwoUlp) {
  Worst worst = worst_error("exp", [](double x) { return std::exp(x); });
  expect_within(2.0, worst);
}

TEST(VectorMath, LogIsWithinTwoUlp) {
  Worst worst = worst_error("log", [](double x) { return std::log(x); });
  expect_within(2.0, worst);
}

TEST(VectorMath, LogInDoublePrecision) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> x{0.0, -0.0, -1.0, inf, -inf, NAN, 1.0, 5e-324, 1e-310, 0x1p-1022, 1.7e308, 0.70710678118654746};
  for (double size = 1e-320; size < 1e308; size *= 1.37) x.push_back(size);
  for (double near = 0.4; near < 2.5; near += 1e-4) x.push_back(near);
  for (double little = 1e-16; little < 0.1; little *= 1.7) x.insert(x.end(), {1 + little, 1 - little});
  std::vector<double> y(x.size());
  std::vector<int64_t> sizes{static_cast<int64_t>(x.size())};
  runtime::TensorRef in{x.data(), DType::kF64, sizes}, out{y.data(), DType::kF64, sizes};
  runtime::SerialTeam team;
  engine::compile("program @log(%x: f64[N]) { %y = log %x : f64[N] return %y }")->run({&in, 1}, {&out, 1}, team);
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::log(x[i]);
    if (std::isfinite(want))
      EXPECT_NEAR(y[i], want, 4.5e-16 * std::max(std::abs(want), 1e-300)) << "at " << x[i];
    else
      EXPECT_TRUE(std::isnan(want) ? std::isnan(y[i]) : y[i] == want) << "at " << x[i];
  }
}

TEST(VectorMath, TanhIsWithinTwoAndAHalfUlp) {
  Worst worst = worst_error("tanh", [](double x) { return std::tanh(x); });
  expect_within(2.5, worst);
}

TEST(VectorMath, Expm1IsWithinFiveUlp) {
  Worst worst = worst_error("expm1", [](double x) { return std::expm1(x); });
  expect_within(5.0, worst);
}

TEST(VectorMath, SigmoidIsWithinTwoAndAHalfUlp) {
  Worst worst = worst_error("sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); });
  expect_within(2.5, worst);
}

/// Functions of the C library that machine code has inline. Sines of large numbers are the library's own.
TEST(VectorMath, FunctionsOfTheLibraryAreWithinOneUlp) {
  constexpr uint64_t kEvery = 331;
  expect_within(1.0, worst_error("log2", [](double x) { return std::log2(x); }, kEvery));
  expect_within(1.0, worst_error("log10", [](double x) { return std::log10(x); }, kEvery));
  expect_within(2.0, worst_error("log1p", [](double x) { return std::log1p(x); }, kEvery));
  expect_within(1.0, worst_error("sin", [](double x) { return std::sin(x); }, kEvery));
  expect_within(1.0, worst_error("cos", [](double x) { return std::cos(x); }, kEvery));
  expect_within(1.0, worst_error("erfc", [](double x) { return std::erfc(x); }, kEvery));
  expect_within(2.0, worst_error("erf", [](double x) { return std::erf(x); }, kEvery));
}

std::vector<float> numbers_with_edges(uint32_t seed, size_t count) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> all{0.0f, -0.0f, 1.0f,   -1.0f, 0.5f,   -0.5f, 2.0f,   -2.0f, 3.0f,   -3.0f,      inf,
                         -inf, NAN,   1e-40f, 1e38f, -1e38f, 88.0f, -88.0f, 2.5f,  1e-20f, 8388608.0f, 16777217.0f};
  std::mt19937 random(seed);
  while (all.size() < count)
    all.push_back(random() % 2 == 0 ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                                    : std::ldexp(static_cast<float>(random() % 4096) - 2048, -9));
  return all;
}

void expect_pairs_within_one_ulp(const char* name, double (*reference)(double, double)) {
  const auto some = numbers_with_edges(1, 700), others = numbers_with_edges(2, 700);
  std::vector<float> x, y;
  for (float a : some)
    for (float b : others) x.push_back(a), y.push_back(b);
  std::vector<float> got(x.size());
  std::vector<int64_t> sizes{static_cast<int64_t>(x.size())};
  const runtime::TensorRef in[] = {{x.data(), DType::kF32, sizes}, {y.data(), DType::kF32, sizes}};
  runtime::TensorRef out{got.data(), DType::kF32, sizes};
  runtime::SerialTeam team;
  engine::compile(fmt::format("program @{0}(%x: f32[N], %y: f32[N]) {{ %z = {0} %x, %y : f32[N] return %z }}", name))
      ->run(in, {&out, 1}, team);
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(got[i], reference(x[i], y[i]));
    ASSERT_LE(error, 1.0) << name << " of " << x[i] << ", " << y[i] << " is " << got[i];
  }
}

TEST(VectorMath, FunctionsOfTwoNumbersAreWithinOneUlp) {
  expect_pairs_within_one_ulp("pow", [](double x, double y) { return std::pow(x, y); });
  expect_pairs_within_one_ulp("atan2", [](double y, double x) { return std::atan2(y, x); });
  expect_pairs_within_one_ulp("hypot", [](double x, double y) { return std::hypot(x, y); });
  expect_pairs_within_one_ulp("logaddexp", [](double x, double y) {
    return std::fmax(x, y) + std::log1p(x == y ? 1 : std::exp(-std::fabs(x - y)));
  });
}

void expect_coarse(const Worst& worst) {
  std::printf("worst %.3f of 2^-12 at %.9g\n", worst.error, static_cast<double>(worst.at));
  EXPECT_LE(worst.error, 1) << "at " << worst.at;
}

TEST(VectorMath, WhatIsRoundedToBf16IsWithinTwoToTheMinusTwelve) {
  expect_coarse(worst_coarse_error("tanh", [](double x) { return std::tanh(x); }));
  expect_coarse(worst_coarse_error("sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }));
}

}  // namespace
}  // namespace weft::vector_math_test
