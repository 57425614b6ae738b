// Functions of f32 on targets without f64, against the C library's in double precision: compiled for this machine with
// the target's f64 taken away, so that they are the formulas of a Cortex-M. With WEFT_ALL_FLOATS=1 every float is
// tried (half an hour); otherwise every 499th, and all special ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ir/text/parser.h"
#include "jit/jit.h"
#include "packages/package.h"
#include "packages/target.h"
#include "resident/step.h"

namespace weft::single_functions_test {
namespace {

constexpr const char* kTarget = "x86-64-v3";
constexpr size_t kChunk = 1 << 12;
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Distance in units in the last place of the correctly rounded result (of the smallest normal's for subnormal ones);
/// zeros of different signs are far apart.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e9;
  const auto rounded = static_cast<float>(want);
  if (got == rounded) return std::signbit(got) == std::signbit(rounded) ? 0 : 1e9;
  if (!std::isfinite(rounded) || !std::isfinite(got)) {
    // Half an ulp on the other side of the largest float.
    const double other = std::isfinite(rounded) ? std::copysign(0x1p128, static_cast<double>(got)) : got;
    return std::isnan(got) || !std::isfinite(want) ? 1e9 : std::abs(other - want) / 0x1p104;
  }
  const int exponent = std::max(std::ilogb(rounded == 0 ? std::numeric_limits<float>::denorm_min() : rounded), -126);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

/// A function of f32 as a package's step for AVX2 without f64.
class Function {
 public:
  /// `op` in the IR's words, of %x or of %x and %y.
  explicit Function(const std::string& op) {
    packages::StepModel step;
    step.name = "function";
    step.program = ir::parse(fmt::format(
        "program @function(%x: f32[{0}], %y: f32[{0}]) {{ %n = neg %y : f32[{0}] %z = {1} : f32[{0}] return %z, %n }}",
        kChunk, op));
    step.inputs = {step.program.type(step.program.body.args[0]), step.program.type(step.program.body.args[1])};
    step.input_names = {"x", "y"};
    step.output_names = {"z", "n"};
    packages::Target target = packages::find_target(kTarget);
    target.wide_functions = false;
    code_ = jit::link({packages::compile(step, target).bytes});
    auto* found = reinterpret_cast<void*>(code_->function("function_model"));
    model_ = reinterpret_cast<const resident::Model* (*)()>(found)();
    state_.reset(static_cast<std::byte*>(
        std::aligned_alloc(model_->state_align, std::max<size_t>(model_->state_bytes, model_->state_align))));
    model_->reset(state_.get());
  }

  /// Of so many elements as a chunk has.
  std::vector<float> operator()(const std::vector<float>& x, const std::vector<float>& y) const {
    std::vector<float> z(kChunk), unused(kChunk);
    const void* inputs[] = {x.data(), y.data()};
    void* outputs[] = {z.data(), unused.data()};
    EXPECT_EQ(model_->step(state_.get(), inputs, outputs), 0);
    return z;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<jit::Code> code_;
  const resident::Model* model_ = nullptr;
  std::unique_ptr<std::byte, Free> state_;
};

struct Worst {
  double error = 0;
  float x = 0, y = 0;
};

using Reference = std::function<double(double, double)>;
/// What is tried, given a place for the next pair; false at the end.
using Next = std::function<bool(float& x, float& y)>;

Worst worst_error(const std::string& op, const Reference& reference, const Next& next) {
  const Function function(op);
  Worst worst;
  std::vector<float> x(kChunk), y(kChunk);
  for (bool more = true; more;) {
    size_t count = 0;
    while (count < kChunk && (more = next(x[count], y[count]))) ++count;
    const std::vector<float> z = function(x, y);
    for (size_t i = 0; i < count; ++i) {
      const double error = ulps(z[i], reference(x[i], y[i]));
      if (error > worst.error) worst = {error, x[i], y[i]};
    }
  }
  std::printf("%s: worst %.3f ulp at %.9g, %.9g\n", op.c_str(), worst.error, static_cast<double>(worst.x),
              static_cast<double>(worst.y));
  return worst;
}

constexpr float kSpecial[] = {0.0F,         -0.0F,     1.0F,    -1.0F,    2.0F,    -2.0F,   3.0F,
                              -3.0F,        0.5F,      -0.5F,   2.5F,     -2.5F,   1e-40F,  -1e-40F,
                              1e-45F,       0x1p-126F, 3.4e38F, -3.4e38F, 1.5e38F, 0x1p24F, 0x1p23F + 1,
                              -0x1p23F - 1, 0x1p25F,   10.0F,   1000.0F,  kInf,    -kInf,   NAN};

/// Floats by their bits, and special ones.
Next all_floats() {
  const char* all = std::getenv("WEFT_ALL_FLOATS");
  const uint64_t stride = all && *all == '1' ? 1 : 499;
  return [stride, bits = uint64_t{0}, special = size_t{0}](float& x, float& y) mutable {
    y = 0;
    if (special < std::size(kSpecial)) {
      x = kSpecial[special++];
      return true;
    }
    x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    bits += stride;
    return bits <= 0xffffffffU + stride;
  };
}

/// Every pair of special numbers, and then pairs that `make` makes of random bits.
Next pairs(std::function<void(std::mt19937_64&, float& x, float& y)> make, uint64_t count = 2'000'000) {
  return [make, count, random = std::mt19937_64(7), i = uint64_t{0}](float& x, float& y) mutable {
    constexpr uint64_t kSpecials = std::size(kSpecial);
    if (i < kSpecials * kSpecials) {
      x = kSpecial[i / kSpecials];
      y = kSpecial[i % kSpecials];
    } else {
      make(random, x, y);
    }
    return i++ < kSpecials * kSpecials + count;
  };
}

float any_float(std::mt19937_64& random) { return std::bit_cast<float>(static_cast<uint32_t>(random())); }

/// Any two floats, or two of which the second one is up to 2^24 times as large or as small.
void any_pair(std::mt19937_64& random, float& x, float& y) {
  x = any_float(random);
  y = any_float(random);
  if (random() % 2 == 0) y = x * std::ldexp(1 + std::abs(std::ldexp(y, -200)), static_cast<int>(random() % 49) - 24);
  if (random() % 4 == 0)
    y = std::bit_cast<float>(std::bit_cast<uint32_t>(x) + static_cast<uint32_t>(random() % 99) - 49);
}

/// Two floats of which the exponentials of both count in the sum's.
void near_pair(std::mt19937_64& random, float& x, float& y) {
  x = std::ldexp(static_cast<float>(random()) - 0x1p63F, -57 - static_cast<int>(random() % 12));
  y = x + std::ldexp(static_cast<float>(random()) - 0x1p63F, -58 - static_cast<int>(random() % 12));
}

/// A base of any size, or beside 1, and an exponent for which the result is mostly finite.
void power_pair(std::mt19937_64& random, float& x, float& y) {
  x = any_float(random);
  if (random() % 2 == 0)
    x = 1 + std::ldexp(static_cast<float>(random()), -64 - static_cast<int>(random() % 20)) - 0x1p-2F;
  if (random() % 4 == 0) x = std::bit_cast<float>(0x3f800000U + static_cast<uint32_t>(random() % 2001) - 1000);
  const double share = std::ldexp(static_cast<double>(random()), -63) - 1;
  y = static_cast<float>(share * 104 / std::abs(std::log(std::abs(static_cast<double>(x)))));
  if (random() % 8 == 0) y = std::round(y);
}

class SingleFunctions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!packages::runs_here(packages::find_target(kTarget))) GTEST_SKIP() << "this machine is no " << kTarget;
  }
};

TEST_F(SingleFunctions, SineAndCosine) {
  EXPECT_LE(worst_error("sin %x", [](double x, double) { return std::sin(x); }, all_floats()).error, 2);
  EXPECT_LE(worst_error("cos %x", [](double x, double) { return std::cos(x); }, all_floats()).error, 2);
}

TEST_F(SingleFunctions, BesideMultiplesOfHalfPi) {
  const auto beside = [](std::mt19937_64& random, float& x, float& y) {
    const double multiple = static_cast<double>(random() >> (11 + random() % 53)) * 1.57079632679489661923;
    x = std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(multiple)) +
                             static_cast<uint32_t>(random() % 5) - 2);
    y = 0;
  };
  EXPECT_LE(worst_error("sin %x", [](double x, double) { return std::sin(x); }, pairs(beside)).error, 2);
  EXPECT_LE(worst_error("cos %x", [](double x, double) { return std::cos(x); }, pairs(beside)).error, 2);
}

TEST_F(SingleFunctions, Logarithms) {
  EXPECT_LE(worst_error("log2 %x", [](double x, double) { return std::log2(x); }, all_floats()).error, 2);
  EXPECT_LE(worst_error("log10 %x", [](double x, double) { return std::log10(x); }, all_floats()).error, 2);
}

TEST_F(SingleFunctions, Erfc) {
  EXPECT_LE(worst_error("erfc %x", [](double x, double) { return std::erfc(x); }, all_floats()).error, 4);
}

TEST_F(SingleFunctions, Hypot) {
  const auto exact = [](double x, double y) { return std::hypot(x, y); };
  EXPECT_LE(worst_error("hypot %x, %y", exact, pairs(any_pair)).error, 2);
}

TEST_F(SingleFunctions, Logaddexp) {
  // In units of the larger of |x|, |y| and 1.
  const auto exact = [](double x, double y) {
    if (x == y) return std::isinf(x) ? x : x + std::log(2.0);
    return std::max(x, y) + std::log1p(std::exp(-std::abs(x - y)));
  };
  const Function function("logaddexp %x, %y");
  const Next next = pairs(near_pair, 1'000'000);
  std::vector<float> x(kChunk), y(kChunk);
  double worst = 0;
  for (bool more = true; more;) {
    size_t count = 0;
    while (count < kChunk && (more = next(x[count], y[count]))) ++count;
    const std::vector<float> z = function(x, y);
    for (size_t i = 0; i < count; ++i) {
      const double want = std::isnan(x[i]) || std::isnan(y[i]) ? NAN : exact(x[i], y[i]);
      const double size = std::max({std::abs(static_cast<double>(x[i])), std::abs(static_cast<double>(y[i])), 1.0});
      if (!std::isfinite(want) || !std::isfinite(z[i])) {
        ASSERT_LT(ulps(z[i], want), 1e6) << x[i] << ", " << y[i] << ": " << z[i] << ", not " << want;
      } else {
        worst = std::max(worst, std::abs(static_cast<double>(z[i]) - want) / std::ldexp(1.0, std::ilogb(size) - 23));
      }
    }
  }
  std::printf("logaddexp %%x, %%y: worst %.3f units of the larger\n", worst);
  EXPECT_LE(worst, 2);
}

TEST_F(SingleFunctions, Atan2) {
  const auto exact = [](double y, double x) { return std::atan2(y, x); };
  EXPECT_LE(worst_error("atan2 %x, %y", exact, pairs(any_pair)).error, 3);
}

TEST_F(SingleFunctions, Power) {
  const auto exact = [](double x, double y) { return std::pow(x, y); };
  EXPECT_LE(worst_error("pow %x, %y", exact, pairs(power_pair)).error, 3);
  EXPECT_LE(worst_error("pow %x, %y", exact, pairs(any_pair, 1'000'000)).error, 3);
}

TEST_F(SingleFunctions, Remainder) {
  const auto exact = [](double x, double y) {
    return static_cast<double>(std::fmod(static_cast<float>(x), static_cast<float>(y)));
  };
  EXPECT_EQ(worst_error("rem %x, %y", exact, pairs(any_pair, 1'000'000)).error, 0);
}

}  // namespace
}  // namespace weft::single_functions_test
