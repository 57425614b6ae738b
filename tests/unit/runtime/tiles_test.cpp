// The tile unit of AMX: its emulation against the arithmetic of the processor; the kernels' machine code, on the unit
// or with each of its instructions emulated, against the kernels that are compiled for the emulation; programs with
// enough rows for several tiles.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "gradients.h"
#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "native_run.h"
#include "passes/differentiation/vjp.h"
#include "programs.h"
#include "random_program.h"
#include "runtime/kernels/isa_tables.h"
#include "runtime/kernels/kernels.h"
#include "runtime/simd/emulated_amx_unit.h"
#include "runtime/threads/team.h"
#include "trapped_tiles.h"

namespace weft::runtime::tiles_test {
namespace {

// ---- one multiplication

/// bf16 of all kinds: many denormals, some infinite or NaN if `special`.
class Halves {
 public:
  explicit Halves(bool special) : special_(special) {}

  uint16_t next() {
    const uint32_t kind = below(16);
    const uint32_t sign = below(2) << 15, fraction = below(128);
    if (special_ && kind == 0) return static_cast<uint16_t>(sign | 0x7f80 | (below(4) == 0 ? fraction : 0));
    if (kind < 4) return static_cast<uint16_t>(sign | fraction);                           // denormal, or 0
    if (kind < 8) return static_cast<uint16_t>(sign | (below(40) + 44) << 7 | fraction);   // products about 2^-126
    if (kind == 8) return static_cast<uint16_t>(sign | (below(8) + 184) << 7 | fraction);  // and about 2^127
    return static_cast<uint16_t>(sign | (below(24) + 115) << 7 | fraction);
  }
  uint32_t below(uint32_t limit) { return std::uniform_int_distribution<uint32_t>(0, limit - 1)(random_); }

 private:
  bool special_;
  std::mt19937 random_{7};
};

#if defined(__x86_64__)
float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

using Sums = std::array<std::array<float, kTileRows>, kTileRows>;

/// The operands of one multiplication: c += a b.
struct Operands {
  uint16_t a[kTileRows][2 * kTileRows] = {}, b[kTileRows][2 * kTileRows] = {};
  Sums c{};

  explicit Operands() = default;
  /// Most steps of most rows of a are 0, so that sums have few terms: large terms would hide small ones.
  explicit Operands(Halves& halves) {
    for (uint32_t i = 0; i < kTileRows; ++i)
      for (uint32_t j = 0; j < 2 * kTileRows; ++j) {
        a[i][j] = halves.below(16) <= i ? halves.next() : 0;
        b[i][j] = halves.next();
        c[i][j / 2] = halves.below(2) ? widened(halves.next()) : 0;
      }
  }

  /// Rows from `rows` on are NaNs of all ones.
  Sums emulated(int rows) const {
    using Unit = EmulatedAmxUnit;
    Unit::configure(kTileConfigs.of[rows]);
    Unit::load<Tiles<1>::result(0, 0)>(&c, sizeof(c[0]));
    Unit::load<Tiles<1>::left(0)>(a, sizeof(a[0]));
    Unit::load<Tiles<1>::right(0)>(b, sizeof(b[0]));
    Unit::multiply<Tiles<1>::result(0, 0), Tiles<1>::left(0), Tiles<1>::right(0)>();
    Sums found;
    std::memset(&found, 0xff, sizeof(found));
    Unit::store<Tiles<1>::result(0, 0)>(&found, sizeof(found[0]));
    Unit::release();
    return found;
  }

  Sums by_processor() const {
    Sums sums;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zeros
    for (size_t i = 0; i < kTileRows; ++i)
      for (size_t j = 0; j < kTileRows; ++j) sums[i][j] = sum(i, j);
    _mm_setcsr(before);
    return sums;
  }

 private:
  [[gnu::target("fma"), gnu::noinline]] float sum(size_t i, size_t j) const {
    float first = 0, second = 0;
    for (size_t k = 0; k < kTileRows; ++k) {
      first = __builtin_fmaf(widened(a[i][2 * k]), widened(b[k][2 * j]), first);
      second = __builtin_fmaf(widened(a[i][2 * k + 1]), widened(b[k][2 * j + 1]), second);
    }
    return c[i][j] + (first + second);
  }
};

class TileUnit : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "this CPU does not fuse";
  }
};

TEST_P(TileUnit, EmulationRoundsAsTheProcessor) {
  Halves halves(GetParam());
  int64_t zeros = 0, denormals = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int rows = 1 + trial % kTileRows;
    const Operands operands(halves);
    const Sums found = operands.emulated(rows), expected = operands.by_processor();
    for (size_t i = 0; i < kTileRows; ++i)
      for (size_t j = 0; j < kTileRows; ++j) {
        const auto bits = std::bit_cast<uint32_t>(found[i][j]);
        if (i >= static_cast<size_t>(rows)) {
          ASSERT_EQ(bits, 0xffffffff) << "written below the rows";
          continue;
        }
        zeros += bits << 1 == 0;
        denormals += (bits & 0x7f800000) == 0 && bits << 1 != 0;
        if (std::isnan(expected[i][j]))
          ASSERT_TRUE(std::isnan(found[i][j]));
        else
          ASSERT_EQ(bits, std::bit_cast<uint32_t>(expected[i][j])) << found[i][j] << " and not " << expected[i][j];
      }
  }
  EXPECT_GT(zeros, 100);
  EXPECT_EQ(denormals, 0);
}

/// 2^-126 - 2^-151 rounds up to the smallest normal number, 2^-126 - 2^-150 is a number of 24 digits below it.
TEST_P(TileUnit, EmulationFlushesWhatIsTooSmallAfterRounding) {
  auto power = [](int exponent) { return static_cast<uint16_t>((exponent + 127) << 7); };
  for (uint16_t sign : {0, 0x8000}) {
    Operands operands;
    operands.a[0][0] = power(-63) | sign;
    operands.a[0][2] = power(-75) | sign;
    operands.b[0][0] = operands.b[0][2] = power(-63);
    operands.b[1][0] = power(-76) | 0x8000;
    operands.b[1][2] = power(-75) | 0x8000;
    const Sums found = operands.emulated(1), expected = operands.by_processor();
    EXPECT_EQ(found[0][0], sign ? -0x1p-126F : 0x1p-126F);
    EXPECT_EQ(found[0][1], 0);
    EXPECT_EQ(std::memcmp(&found[0], &expected[0], sizeof(found[0])), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TileUnit, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "special" : "finite"; });

#if defined(__linux__)
TEST(TileKernels, TheUnitGivesTheBitsOfItsEmulation) {
  std::optional<TrappedTiles> trapped;
  if (!supports(Isa::kAmx)) {
    if (!TrappedTiles::are_possible()) GTEST_SKIP() << "this CPU lacks avx512bf16";
    trapped.emplace();
  }
  const PairKernels& unit = trapped ? TrappedTiles::kernels() : pair_kernels(Isa::kAmx);
  const PairKernels& emulated = pair_kernels(Isa::kAmxEmulated);
  Halves halves(false);
  for (int64_t vectors = 1; vectors <= target::kMaxPanelUnits; ++vectors)
    for (int64_t rows : {1, 2, 15, 16, 17, 33, 64})
      for (int64_t k : {1, 31, 32, 33, 100, 256, 300}) {
        const int64_t width = vectors * target::lanes(DType::kF32), panels = 3;
        std::vector<uint16_t> a(static_cast<size_t>(rows * k)),
            b(static_cast<size_t>(panels * (k + 1) / 2 * 2 * width));
        std::ranges::generate(a, [&] { return halves.next(); });
        std::ranges::generate(b, [&] { return halves.next(); });
        std::vector<float> c(static_cast<size_t>(rows * panels * width), 0.5F), d = c;
        for (bool accumulate : {false, true}) {
          unit.bf16[vectors](rows, k, a.data(), k, b.data(), panels, c.data(), panels * width, width, accumulate);
          emulated.bf16[vectors](rows, k, a.data(), k, b.data(), panels, d.data(), panels * width, width, accumulate);
          for (size_t i = 0; i < c.size(); ++i)
            ASSERT_TRUE(std::isnan(c[i]) ? std::isnan(d[i])
                                         : std::bit_cast<uint32_t>(c[i]) == std::bit_cast<uint32_t>(d[i]))
                << c[i] << " and " << d[i] << " with " << rows << " rows, k " << k;
        }
      }
  unit.release();
  emulated.release();
}
#endif
#endif

TEST(TileKernels, TilesAreKeptBetweenCallsAndReleased) {
  const PairKernels& emulated = pair_kernels(Isa::kAmxEmulated);
  const uint16_t a[2] = {0x3f80, 0x4000};
  const uint16_t panel[32] = {0x3f80, 0x3f80};
  float c[16] = {};
  EXPECT_FALSE(has_emulated_tiles());
  emulated.bf16[1](1, 2, a, 2, panel, 1, c, 16, 16, 0);
  EXPECT_EQ(c[0], 3);
  EXPECT_EQ(c[1], 0);
  EXPECT_TRUE(has_emulated_tiles());
  release_tiles();
  EXPECT_FALSE(has_emulated_tiles());
}

}  // namespace
}  // namespace weft::runtime::tiles_test

namespace weft::tiles_test {
namespace {

// ---- programs

using interpreter::Array;

/// Of bf16, with sizes that leave part of a tile and of a pair: 8 becomes 21, and 16, 32, 48 multiples of 40.
std::string odd_cell(const char* name) {
  std::string text = std::regex_replace(testing::program_text(name), std::regex("//[^\n]*"), "");
  for (auto [from, to] : {std::pair{"16", "40"}, {"32", "80"}, {"48", "120"}, {"8", "21"}})
    text = std::regex_replace(text, std::regex(std::string("([\\[,] ?|(?:limit|start) = )") + from + "\\b"),
                              std::string("$01") + to);
  return std::regex_replace(text, std::regex("f32"), "bf16");
}

class EngineTiles : public ::testing::Test {
 protected:
  /// Against the interpreter, and on more threads.
  static void check(const ir::Program& program, double tolerance) {
    const std::string text = ir::print(program);
    for (int64_t batch : {1, 15, 16, 17, 33, 70}) {
      const ir::Bindings bindings{{"T", 3}, {"B", batch}};
      std::vector<Array> inputs = testing::random_inputs(program, bindings, 5);
      for (Array& input : inputs) {
        std::vector<double> values = input.to_doubles();
        for (double& value : values) value *= 0.2;
        input = Array::of(input.dtype, input.sizes, values);
      }
      runtime::SerialTeam alone;
      const std::vector<Array> got = testing::run_native(text, inputs, bindings, alone);
      EXPECT_FALSE(runtime::has_emulated_tiles());
      EXPECT_LE(testing::difference(got, interpreter::evaluate(program, inputs)), tolerance) << "B " << batch;
      const std::vector<Array> shared = testing::run_native(text, inputs, bindings, runtime::own_team(3));
      EXPECT_FALSE(runtime::has_emulated_tiles());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].bytes, shared[i].bytes) << "B " << batch << ", result " << i;
    }
  }
};

TEST_F(EngineTiles, RowsOfSeveralTiles) { check(ir::parse(odd_cell("gru")), 5e-2); }

TEST_F(EngineTiles, GradientsOfRowsOfSeveralTiles) {
  const ir::Program program = ir::parse(odd_cell("gru"));
  check(passes::vjp_of_primals(program, testing::floating_inputs(program)), 0.5);
}

}  // namespace
}  // namespace weft::tiles_test
