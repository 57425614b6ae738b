// The micro-kernels for f16 weights and their gradients give the bits of those for f32.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "elements.h"
#include "interpreter/interpreter.h"
#include "interpreter/numeric.h"
#include "ir/text/parser.h"
#include "native_run.h"
#include "random_program.h"
#include "runtime/kernels/kernels.h"
#include "runtime/memory/guarded_memory.h"
#include "runtime/plan/run.h"

namespace weft::f16_kernels_test {
namespace {

using interpreter::Half;
using runtime::GuardedMemory;
using runtime::Isa;
using runtime::PackArgs;
using testing::Elements;

float widened(uint16_t bits) { return interpreter::load(Half{bits}); }

class F16Test : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!runtime::supports(GetParam())) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam());
  }
  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  std::mt19937_64 random_{20260101};
};

/// The panels, packed by either kernel.
void expect_same_panels(Isa isa, PackArgs args, Elements<uint16_t>& halves, int64_t source, int64_t panels) {
  Elements<float> floats(source);
  for (int64_t i = 0; i < source; ++i) floats[i] = widened(halves[i]);
  const int64_t bytes = panels * args.k * args.groups * args.unroll * target::kUnit;
  const GuardedMemory expected(std::max<int64_t>(64, bytes), GuardedMemory::Side::kEnd, 64);
  const GuardedMemory found(std::max<int64_t>(64, bytes), GuardedMemory::Side::kEnd, 64);
  args.source = floats.data();
  args.destination = expected.data();
  runtime::kernels(isa, DType::kF32).pack(args, 0, panels);
  args.source = halves.data();
  args.destination = found.data();
  runtime::widened_kernels(isa, DType::kF16).pack(args, 0, panels);
  ASSERT_EQ(std::memcmp(expected.data(), found.data(), static_cast<size_t>(bytes)), 0)
      << "k " << args.k << " n " << args.n << " groups " << args.groups << " unroll " << args.unroll << " transposed "
      << args.transposed;
}

TEST_P(F16Test, PanelsAreThoseOfTheWidenedWeights) {
  constexpr int64_t kLanes = target::lanes(DType::kF32);
  for (int trial = 0; trial < 300; ++trial) {
    PackArgs args{};
    args.groups = between(1, 4);
    args.unroll = args.groups == 1 ? between(1, 4) : 1;
    args.k = trial % 3 == 0 ? between(0, 5) : between(0, 150);
    args.n = trial % 4 == 0 ? between(1, 3) : between(1, 90);
    args.transposed = between(0, 1) != 0;
    const int64_t columns = args.groups * args.n, rows = args.transposed ? columns : args.k;
    args.ld = (args.transposed ? args.k : columns) + between(0, 5);
    Elements<uint16_t> halves(rows * args.ld);
    for (int64_t i = 0; i < rows * args.ld; ++i) halves[i] = static_cast<uint16_t>(between(0, 0xffff));
    expect_same_panels(GetParam(), args, halves, rows * args.ld,
                       (args.n + args.unroll * kLanes - 1) / (args.unroll * kLanes));
  }
}

TEST_P(F16Test, EveryNumberIsWidened) {
  Elements<uint16_t> halves(1 << 16);
  for (int64_t i = 0; i < 1 << 16; ++i) halves[i] = static_cast<uint16_t>(i);
  for (const bool transposed : {false, true})  // 16 and 13 columns, so whole vectors and parts
    for (const int64_t n : {16, 13}) {
      const int64_t k = (1 << 16) / n;
      expect_same_panels(GetParam(), {nullptr, nullptr, k, n, 1, 1, transposed ? k : n, transposed}, halves, 1 << 16,
                         1);
    }
}

TEST_P(F16Test, GradientsAreThoseOfF32Rounded) {
  const runtime::DTypeKernels& f32 = runtime::kernels(GetParam(), DType::kF32);
  const runtime::F16OuterKernels& f16 = runtime::f16_outer_kernels(GetParam());
  const GuardedMemory scratch(std::max(f32.outer_scratch_bytes, f16.outer_scratch_bytes), GuardedMemory::Side::kEnd,
                              64);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t rows = trial % 3 == 0 ? between(0, 3) : between(0, 300);
    const int64_t m = trial % 4 == 0 ? between(190, 420) : between(0, 40);
    const int64_t n = trial % 5 == 0 ? between(190, 420) : between(0, 70);
    const int64_t lda = m + between(0, 3), ldb = n + between(0, 3), ldc = n + between(0, 3);
    Elements<float> a(rows * lda), b(rows * ldb), c(m * ldc);
    Elements<uint16_t> found(m * ldc);
    // The scales range from numbers that round to zero to numbers beyond f16.
    const float scale = std::ldexp(1.0F, static_cast<int>(between(-28, 16)));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * lda; ++i) a[i] = scale * normal(random_);
    for (int64_t i = 0; i < rows * ldb; ++i) b[i] = normal(random_);
    for (int64_t i = 0; i < m * ldc; ++i) found[i] = 0x1234;
    f32.outer({a.data(), b.data(), c.data(), rows, m, n, lda, ldb, ldc}, 0, m, 0, n, scratch.data());
    const int64_t m_half = between(0, m), n_half = between(0, n);
    for (const auto& [m0, m1] : {std::pair{int64_t{0}, m_half}, std::pair{m_half, m}})
      for (const auto& [n0, n1] : {std::pair{int64_t{0}, n_half}, std::pair{n_half, n}})
        f16.outer({a.data(), b.data(), found.data(), rows, m, n, lda, ldb, ldc}, m0, m1, n0, n1, scratch.data());
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < ldc; ++j)
        ASSERT_EQ(found[i * ldc + j], j < n ? interpreter::store<Half>(c[i * ldc + j]).bits : 0x1234)
            << "rows " << rows << " m " << m << " n " << n << " at " << i << ", " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(All, F16Test, ::testing::Values(Isa::kGeneric, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// ---- programs

/// Gates, a product by columns, weights that are slices, and both gradients; H units, I inputs.
std::string program_of(const char* dtype, int64_t inputs, int64_t units) {
  const std::string casts =
      std::string(dtype) == "f32"
          ? "%wf = copy %w : f32[{3H},{I}] %uf = copy %u : f32[{3H},{H}] %vf = copy %v : f32[{H},{I}]"
          : "%wf = cast %w : f32[{3H},{I}] %uf = cast %u : f32[{3H},{H}] %vf = cast %v : f32[{H},{I}]";
  std::string text =
      "program @p(%x: f32[T,B,{I}], %h0: f32[B,{H}], %w: {D}[{3H},{I}], %u: {D}[{3H},{H}], %v: {D}[{H},{I}]) { " +
      casts + R"(
    %px = matmul %x, %wf {transpose_b = true} : f32[T,B,{3H}]
    %hT, %ys = scan length T carry(%h = %h0) xs(%p = %px) {
      %q = matmul %h, %uf {transpose_b = true} : f32[B,{3H}]
      %s = add %p, %q : f32[B,{3H}]
      %a = slice %s {dim = 1, start = 0, limit = {H}} : f32[B,{H}]
      %b = slice %s {dim = 1, start = {H}, limit = {2H}} : f32[B,{H}]
      %c = slice %s {dim = 1, start = {2H}, limit = {3H}} : f32[B,{H}]
      %d = mul %a, %b : f32[B,{H}]
      %e = add %d, %c : f32[B,{H}]
      %n = tanh %e : f32[B,{H}]
      yield carry(%n) ys(%n)
    } : f32[B,{H}], f32[T,B,{H}]
    %z = matmul %ys, %vf : f32[T,B,{I}]
    %r = slice %vf {dim = 1, start = 0, limit = 1} : f32[{H},1]
    %o = matmul %ys, %r : f32[T,B,1]
    return %z, %o })";
  const std::pair<const char*, std::string> names[] = {{"{I}", std::to_string(inputs)},
                                                       {"{H}", std::to_string(units)},
                                                       {"{2H}", std::to_string(2 * units)},
                                                       {"{3H}", std::to_string(3 * units)},
                                                       {"{D}", dtype}};
  for (const auto& [name, value] : names)
    for (size_t at; (at = text.find(name)) != std::string::npos;) text.replace(at, std::strlen(name), value);
  return text;
}

class F16Programs : public ::testing::TestWithParam<const char*> {
 protected:
  ~F16Programs() override { mutable_settings().pack.clear(); }
};

TEST_P(F16Programs, GiveTheBitsOfF32) {
  mutable_settings().pack = GetParam();
  for (const auto& [inputs, units] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 3}, {16, 16}, {33, 17}, {40, 50}}) {
    const std::string text = program_of("f16", inputs, units), plain = program_of("f32", inputs, units);
    for (const ir::Bindings& bindings : std::vector<ir::Bindings>{{{"T", 0}, {"B", 1}},
                                                                  {{"T", 1}, {"B", 1}},
                                                                  {{"T", 1}, {"B", 40}},
                                                                  {{"T", 5}, {"B", 3}},
                                                                  {{"T", 2}, {"B", 0}}}) {
      const ir::Program program = ir::parse(text);
      const std::vector<interpreter::Array> halves = testing::random_inputs(program, bindings, 3);
      std::vector<interpreter::Array> floats = testing::random_inputs(ir::parse(plain), bindings, 3);
      for (size_t i = 0; i < halves.size(); ++i) {
        const std::vector<double> numbers = halves[i].to_doubles();
        for (size_t j = 0; j < numbers.size(); ++j) floats[i].data<float>()[j] = static_cast<float>(numbers[j]);
      }
      const auto found = testing::run_native(text, halves, bindings, runtime::own_team(1));
      const auto expected = testing::run_native(plain, floats, bindings, runtime::own_team(1));
      const auto slow = interpreter::evaluate(program, halves);
      for (size_t i = 0; i < found.size(); ++i) {
        const std::vector<double> x = found[i].to_doubles(), y = slow[i].to_doubles();
        ASSERT_EQ(x, expected[i].to_doubles()) << text;
        for (size_t j = 0; j < y.size(); ++j) ASSERT_NEAR(x[j], y[j], 1e-4) << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, F16Programs, ::testing::Values("", "never", "always", "way"), [](const auto& test) {
  return *test.param ? std::string(test.param) : std::string("as_it_chooses");
});

TEST(F16Gradients, AreTheInterpreters) {
  const std::string text = R"(program @p(%x: f32[T,B,37], %g: f32[T,B,21]) {
    %o = outer %g, %x : f32[21,37]
    %d = cast %o : f16[21,37]
    return %d })";
  for (const int64_t steps : {0, 1, 7})
    for (const int64_t threads : {1, 3}) {
      const ir::Bindings bindings{{"T", steps}, {"B", 5}};
      const ir::Program program = ir::parse(text);
      const std::vector<interpreter::Array> inputs = testing::random_inputs(program, bindings, 3);
      const auto found = testing::run_native(text, inputs, bindings, runtime::own_team(threads))[0].to_doubles();
      const auto expected = interpreter::evaluate(program, inputs)[0].to_doubles();
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], 1e-3 * std::abs(expected[i]) + 1e-6) << steps << " steps";
    }
}

}  // namespace
}  // namespace weft::f16_kernels_test
