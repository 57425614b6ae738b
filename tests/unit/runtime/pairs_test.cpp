// The micro-kernels for bf16 weights, packing included, against the definition.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "runtime/kernels/isa_tables.h"
#include "runtime/kernels/kernels.h"
#include "trapped_tiles.h"

namespace weft::runtime::pairs_test {
namespace {

float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

struct Case {
  Isa isa;
  bool half_left;
  bool without_product = false;  ///< the kernels of a CPU of that set without bf16 products
};

/// One product: weights of `groups` groups of n columns, c with room beside the panels.
struct Problem {
  int64_t rows, k, n, groups, unroll;
  bool transposed, accumulate;

  int64_t vectors() const { return groups * unroll; }
  int64_t width() const { return vectors() * target::lanes(DType::kF32); }
  int64_t panels() const {
    return (n + unroll * target::lanes(DType::kF32) - 1) / (unroll * target::lanes(DType::kF32));
  }
};

class PairsTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (supports(GetParam().isa)) return;
#if defined(__x86_64__) && defined(__linux__)
    if (GetParam().isa == Isa::kAmx && TrappedTiles::are_possible()) {
      trapped_.emplace();
      return;
    }
#endif
    GTEST_SKIP() << "this CPU lacks " << name_of(GetParam().isa);
  }
  void TearDown() override {
    if (!IsSkipped() && table().release) table().release();
  }
  const PairKernels& table() const {
#if defined(__x86_64__)
    if (GetParam().without_product) return kAvx512Pairs;
#if defined(__linux__)
    if (trapped_) return TrappedTiles::kernels();
#endif
    // Where pair_kernels() has others for this CPU.
    if (GetParam().isa == Isa::kAvx512 && has_bf16_instructions()) return kAvx512Bf16Pairs;
#endif
    return pair_kernels(GetParam().isa);
  }
  PanelsKernel kernel(int64_t vectors) const { return (GetParam().half_left ? table().bf16 : table().f32)[vectors]; }
  size_t left_bytes() const { return GetParam().half_left ? 2 : 4; }

  /// Fewer trials on the emulated tile unit, which computes element by element. Tests of whole programs use it too.
  static int trials(int count) { return GetParam().isa == Isa::kAmxEmulated ? count / 4 : count; }
  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  uint16_t half() {
    float x = std::uniform_real_distribution<float>(-1, 1)(random_);
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  }

  Problem problem(int64_t rows) {
    Problem p{rows,
              between(0, 3) ? between(0, 300) : between(0, 3),
              between(1, 150),
              between(1, 4),
              1,
              between(0, 1) != 0,
              between(0, 1) != 0};
    p.unroll = p.groups == 1 ? between(1, 4) : 1;
    return p;
  }

  std::vector<uint16_t> halves(int64_t count) {
    std::vector<uint16_t> all(static_cast<size_t>(count));
    for (uint16_t& each : all) each = half();
    return all;
  }

  /// All panels, with NaNs all around.
  std::vector<uint16_t> packed(const Problem& p, const std::vector<uint16_t>& weights) {
    auto size = static_cast<size_t>(p.panels() * ((p.k + 1) / 2) * p.width() * 2);
    std::vector<uint16_t> memory(size + 64, 0x7fc0);
    PackArgs args{weights.data(), nullptr, p.k, p.n, p.groups, p.unroll, p.transposed ? p.k : p.n * p.groups,
                  p.transposed};
    auto at = reinterpret_cast<uintptr_t>(memory.data());
    args.destination = memory.data() + (64 - at % 64) % 64 / 2;
    int64_t half_way = p.panels() / 2;
    table().pack(args, 0, half_way);
    table().pack(args, half_way, p.panels());
    auto* first = static_cast<uint16_t*>(args.destination);
    for (auto* each = first + size; each < memory.data() + memory.size(); ++each) EXPECT_EQ(*each, 0x7fc0);
    return {first, first + size};
  }

  /// `a` in the left operand's type, its rows `lda` wide.
  std::vector<std::byte> left(const std::vector<uint16_t>& numbers) const {
    std::vector<std::byte> bytes(numbers.size() * left_bytes());
    for (size_t i = 0; i < numbers.size(); ++i) {
      float wide = widened(numbers[i]);
      if (GetParam().half_left)
        std::memcpy(&bytes[2 * i], &numbers[i], 2);
      else
        std::memcpy(&bytes[4 * i], &wide, 4);
    }
    return bytes;
  }

  std::mt19937_64 random_{20250101};
#if defined(__x86_64__) && defined(__linux__)
  std::optional<TrappedTiles> trapped_;
#endif
};

TEST_P(PairsTest, AgreeWithTheDefinition) {
  for (int trial = 0; trial < trials(400); ++trial) {
    Problem p = problem(trial < 40 ? trial : between(0, 70));
    const int64_t lda = p.k + between(0, 5), step = between(0, 1) ? p.width() : 0, ldc = p.panels() * p.width() + 3;
    std::vector<uint16_t> weights = halves(p.k * p.n * p.groups), numbers(static_cast<size_t>(p.rows * lda), 0x7fc0);
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t i = 0; i < p.k; ++i) numbers[static_cast<size_t>(r * lda + i)] = half();
    std::vector<std::byte> a = left(numbers);
    std::vector<uint16_t> panels = packed(p, weights);
    std::vector<float> c(static_cast<size_t>(std::max<int64_t>(p.rows, 1) * ldc),  // some memory to point into
                         p.accumulate ? 0.5f : std::numeric_limits<float>::quiet_NaN());
    if (step == 0)  // each panel alone
      for (int64_t i = 0; i < p.panels(); ++i)
        kernel(p.vectors())(p.rows, p.k, a.data(), lda, panels.data() + i * ((p.k + 1) / 2) * p.width() * 2, 1,
                            c.data() + i * p.width(), ldc, 0, p.accumulate);
    else
      kernel(p.vectors())(p.rows, p.k, a.data(), lda, panels.data(), p.panels(), c.data(), ldc, step, p.accumulate);
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t panel = 0; panel < p.panels(); ++panel)
        for (int64_t j = 0; j < p.width(); ++j) {
          int64_t group = j / (p.unroll * target::lanes(DType::kF32)),
                  column = panel * p.unroll * target::lanes(DType::kF32) + j % (p.unroll * target::lanes(DType::kF32));
          double sum = p.accumulate ? 0.5 : 0;
          for (int64_t i = 0; i < p.k && column < p.n; ++i) {
            int64_t n = group * p.n + column;
            uint16_t weight = weights[static_cast<size_t>(p.transposed ? n * p.k + i : i * p.n * p.groups + n)];
            sum += double(widened(numbers[static_cast<size_t>(r * lda + i)])) * double(widened(weight));
          }
          ASSERT_NEAR(c[static_cast<size_t>(r * ldc + panel * p.width() + j)], sum, (4 + double(p.k)) * 0x1p-23)
              << "rows " << p.rows << " k " << p.k << " groups " << p.groups << " unroll " << p.unroll;
        }
  }
}

TEST_P(PairsTest, GiveARowTheSameBitsWhateverTheRowsBesideIt) {
  for (int64_t vectors = 1; vectors <= target::kMaxPanelUnits; ++vectors)
    for (int64_t k : {93, 200, 600, 2309}) {
      Problem p{41, k, 5 * vectors * target::lanes(DType::kF32), 1, vectors, true, false};
      std::vector<uint16_t> panels = packed(p, halves(p.k * p.n));
      std::vector<std::byte> a = left(halves(p.rows * k));
      auto width = static_cast<size_t>(p.n);
      std::vector<float> all(static_cast<size_t>(p.rows) * width), some(all);
      kernel(vectors)(p.rows, k, a.data(), k, panels.data(), 5, all.data(), p.n, p.width(), 0);
      for (int64_t rows : {1, 2, 3, 5, 7, 8, 17}) {
        kernel(vectors)(rows, k, a.data(), k, panels.data(), 5, some.data(), p.n, p.width(), 0);
        ASSERT_EQ(std::memcmp(all.data(), some.data(), static_cast<size_t>(rows) * width * sizeof(float)), 0) << rows;
      }
    }
}

/// c by outer() of the matrices, from rectangles given by their bounds, with NaNs beside its rows.
struct Outer {
  int64_t rows, m, n, lda, ldb, ldc;
  std::vector<uint16_t> a, b;

  std::vector<uint16_t> run(const PairKernels& table, const std::vector<int64_t>& m_bounds,
                            const std::vector<int64_t>& n_bounds) const {
    std::vector<uint16_t> c(static_cast<size_t>(m * ldc), 0x7fc0);
    auto* scratch = static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(table.outer_scratch_bytes)));
    const OuterArgs args{a.data(), b.data(), c.data(), rows, m, n, lda, ldb, ldc};
    for (size_t i = 0; i + 1 < m_bounds.size(); ++i)
      for (size_t j = 0; j + 1 < n_bounds.size(); ++j)
        table.outer(args, m_bounds[i], m_bounds[i + 1], n_bounds[j], n_bounds[j + 1], scratch);
    std::free(scratch);
    return c;
  }
};

TEST_P(PairsTest, OuterAgreesWithTheDefinitionHoweverItIsCut) {
  if (!GetParam().half_left) GTEST_SKIP() << "there is one of bf16 only";
  for (int trial = 0; trial < trials(40); ++trial) {
    Outer outer{between(0, trial % 4 == 0 ? 3 : trial % 4 == 1 ? 1100 : 200),
                between(0, 300),
                between(0, 400),
                0,
                0,
                0,
                {},
                {}};
    outer.lda = outer.m + between(0, 4);
    outer.ldb = outer.n + between(0, 4);
    outer.ldc = outer.n + between(0, 4);
    outer.a = halves(outer.rows * outer.lda);
    outer.b = halves(outer.rows * outer.ldb);
    const std::vector<uint16_t> c = outer.run(table(), {0, outer.m}, {0, outer.n});
    std::vector<double> expected(static_cast<size_t>(outer.m * outer.n));
    for (int64_t r = 0; r < outer.rows; ++r)
      for (int64_t m = 0; m < outer.m; ++m)
        for (int64_t n = 0; n < outer.n; ++n)
          expected[static_cast<size_t>(m * outer.n + n)] +=
              double{widened(outer.a[static_cast<size_t>(r * outer.lda + m)])} *
              double{widened(outer.b[static_cast<size_t>(r * outer.ldb + n)])};
    for (int64_t m = 0; m < outer.m; ++m)
      for (int64_t n = 0; n < outer.ldc; ++n) {
        const uint16_t got = c[static_cast<size_t>(m * outer.ldc + n)];
        if (n >= outer.n) {
          ASSERT_EQ(got, 0x7fc0) << "written beyond the row";
          continue;
        }
        const double want = expected[static_cast<size_t>(m * outer.n + n)];
        ASSERT_NEAR(double{widened(got)}, want, std::abs(want) / 256 + 1e-4)
            << outer.rows << " rows, " << m << ", " << n;
      }
    const int64_t m_half = outer.m / 2, n_third = outer.n / 3;
    ASSERT_EQ(outer.run(table(), {0, m_half, outer.m}, {0, n_third, outer.n}), c);
  }
}

TEST_P(PairsTest, OuterRoundsToTheNearestEven) {
  if (!GetParam().half_left) GTEST_SKIP() << "there is one of bf16 only";
  // 1 + 2^-8 lies between 1 and 1 + 2^-7, of which 1 is even; 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6.
  const uint16_t one = 0x3f80, step = 0x3b80, three_steps = 0x3c40, nan = 0x7fc0, most = 0x7f7f;
  const Outer outer{2, 1, 4, 1, 4, 4, {one, one}, {one, one, nan, most, step, three_steps, one, most}};
  const std::vector<uint16_t> c = outer.run(table(), {0, 1}, {0, 4});
  EXPECT_EQ(c[0], one);
  EXPECT_EQ(c[1], 0x3f82);
  EXPECT_TRUE(std::isnan(widened(c[2])));
  EXPECT_EQ(c[3], 0x7f80) << "overflow is infinite";
}

TEST_P(PairsTest, ColumnSumsRoundOnce) {
  if (!GetParam().half_left) GTEST_SKIP() << "there is one of bf16 only";
  std::mt19937 random(1);
  std::uniform_int_distribution<uint16_t> numbers(0x3f00, 0x3fff);  // 0.5 to 2
  for (const int64_t rows : {0, 1, 7, 8, 9, 255, 256, 257, 600})
    for (const int64_t columns : {1, 3, 15, 16, 17, 64, 1024, 1061}) {
      const int64_t lda = columns + rows % 3;
      std::vector<uint16_t> a(static_cast<size_t>(rows * lda)), out(static_cast<size_t>(columns), 0x1234);
      for (uint16_t& number : a) number = numbers(random);
      for (auto [c0, c1] : {std::pair{int64_t{0}, columns / 2}, std::pair{columns / 2, columns}})
        table().column_sum(a.data(), rows, lda, out.data(), c0, c1);
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t r = 0; r < rows; ++r) sum += widened(a[static_cast<size_t>(r * lda + c)]);
        const double found = widened(out[static_cast<size_t>(c)]);
        ASSERT_LE(std::abs(found - sum), sum * 0x1.01p-8) << rows << " rows, column " << c << " of " << columns;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, PairsTest,
                         ::testing::Values(Case{Isa::kGeneric, false}, Case{Isa::kGeneric, true},
                                           Case{Isa::kAvx2, false}, Case{Isa::kAvx2, true}, Case{Isa::kAvx512, false},
                                           Case{Isa::kAvx512, true}, Case{Isa::kAvx512, true, true},
                                           Case{Isa::kAmx, true}, Case{Isa::kAmxEmulated, true}),
                         [](const auto& test) {
                           return std::string(name_of(test.param.isa)) + (test.param.half_left ? "_bf16" : "_f32") +
                                  (test.param.without_product ? "_widened" : "");
                         });

}  // namespace
}  // namespace weft::runtime::pairs_test
