// The micro-kernels for 8-bit weights against the definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "elements.h"
#include "runtime/kernels/isa_tables.h"
#include "runtime/kernels/kernels.h"

namespace weft::runtime::byte_rows_test {
namespace {

struct Case {
  Isa isa;
  bool without_bytes = false;  ///< the kernels of a CPU of that set without products of bytes
};

/// Weights of `groups` groups of n rows; panels of `width` of them.
struct Problem {
  int64_t rows, k, n, groups, width;

  int64_t panels() const { return (n + width - 1) / width; }
};

using Weights = weft::testing::Elements<int8_t>;

class ByteRowsTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!supports(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam().isa);
  }
  const ByteRowsKernels& table() const {
#if defined(__x86_64__)
    if (GetParam().without_bytes) return kAvx512ByteRows;
#endif
    return byte_rows_kernels(GetParam().isa);
  }

  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  float real() { return std::normal_distribution<float>()(random_); }

  Problem problem(int64_t rows) {
    return {rows, between(0, 3) ? between(0, 200) : between(1000, 2100), between(1, 70), between(1, 4),
            16 * between(1, 4)};
  }
  Weights weights(const Problem& p) {
    Weights all(p.groups * p.n * p.k);
    for (int64_t i = 0; i < p.groups * p.n * p.k; ++i) all[i] = static_cast<int8_t>(between(-128, 127));
    return all;
  }

  /// The kernel's c, [panels][rows][groups * width], in one call or in one a panel.
  template <typename T>
  std::vector<T> product(ByteRowsKernel kernel, const Problem& p, const std::vector<T>& a, int64_t lda,
                         const Weights& w, bool at_once) {
    const int64_t step = p.rows * p.groups * p.width;
    std::vector<T> c(static_cast<size_t>(p.panels() * step) + 1);
    for (int64_t panel = 0; panel < p.panels(); panel += at_once ? p.panels() : 1)
      kernel(p.rows, p.k, a.data(), lda, w.data(), p.n, p.groups, p.width, panel, at_once ? p.panels() : 1,
             c.data() + panel * step, step);
    return c;
  }

  /// Calls check(result, row, row of the weights).
  template <typename T, typename Check>
  void each(const Problem& p, const std::vector<T>& c, Check check) {
    for (int64_t r = 0; r < p.rows; ++r)
      for (int64_t row = 0; row < p.groups * p.n; ++row) {
        const int64_t j = row % p.n, panel = j / p.width, place = row / p.n * p.width + j % p.width;
        check(c[static_cast<size_t>((panel * p.rows + r) * p.groups * p.width + place)], r, row);
      }
  }

  std::mt19937_64 random_{20250101};
};

TEST_P(ByteRowsTest, RealsAgreeWithTheDefinition) {
  for (int trial = 0; trial < 300; ++trial) {
    const Problem p = problem(between(0, 11));
    const int64_t lda = p.k + between(0, 3);
    std::vector<float> a(static_cast<size_t>(p.rows * lda) + 1);
    const float size = std::exp(20 * real());
    for (float& x : a) x = size * real();
    if (trial % 3 == 0) std::fill(a.begin(), a.begin() + static_cast<int64_t>(a.size()) / 2, 0.0F);
    const Weights w = weights(p);
    each<float>(p, product<float>(table().f32, p, a, lda, w, trial % 2 == 0), [&](float c, int64_t r, int64_t row) {
      double sum = 0, most = 0, all = 0;
      for (int64_t i = 0; i < p.k; ++i) {
        const double x = a[static_cast<size_t>(r * lda + i)], y = w[row * p.k + i];
        sum += x * y;
        most = std::max(most, std::abs(x));
        all += std::abs(y);
      }
      ASSERT_NEAR(c, sum, most * all * 0x1p-22) << "rows " << p.rows << " k " << p.k << " n " << p.n;
    });
  }
}

TEST_P(ByteRowsTest, IntegersAreExact) {
  for (int trial = 0; trial < 300; ++trial) {
    const Problem p = problem(between(1, 9));
    std::vector<int32_t> a(static_cast<size_t>(p.rows * p.k) + 1);
    const int64_t most[] = {127, 255, 32700, 40000, std::numeric_limits<int32_t>::max()};
    const int64_t bound = most[between(0, 4)];
    for (int32_t& x : a) x = static_cast<int32_t>(between(-bound - (between(0, 9) == 0 ? 1 : 0), bound));
    const Weights w = weights(p);
    each<int32_t>(p, product<int32_t>(table().i32, p, a, p.k, w, true), [&](int32_t c, int64_t r, int64_t row) {
      uint32_t sum = 0;
      for (int64_t i = 0; i < p.k; ++i)
        sum += static_cast<uint32_t>(a[static_cast<size_t>(r * p.k + i)]) *
               static_cast<uint32_t>(int32_t{w[row * p.k + i]});
      ASSERT_EQ(static_cast<uint32_t>(c), sum) << "bound " << bound << " k " << p.k;
    });
  }
}

TEST_P(ByteRowsTest, NumbersThatNoFixedPointHolds) {
  const Problem p{6, 70, 5, 1, 16};
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> a(static_cast<size_t>(p.rows * p.k), 1.0F);
  a[3] = infinity;
  a[static_cast<size_t>(p.k + 60)] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < p.k; ++i) a[static_cast<size_t>(2 * p.k + i)] = 1e-37F;
  Weights w(p.n * p.k);
  std::fill_n(w.data(), p.n * p.k, int8_t{2});
  w[p.k + 3] = -1;
  const std::vector<float> c = product<float>(table().f32, p, a, p.k, w, true);
  EXPECT_EQ(c[0], infinity);
  EXPECT_EQ(c[1], -infinity);
  EXPECT_TRUE(std::isnan(c[16]));
  EXPECT_NEAR(c[32] * 1e37F, 140, 0.001);
  EXPECT_NEAR(c[48], 140, 0.001);
}

TEST_P(ByteRowsTest, GiveARowTheSameBitsWhateverTheRowsBesideIt) {
  const Problem p{11, 1300, 40, 2, 16};
  std::vector<float> a(static_cast<size_t>(p.rows * p.k));
  for (float& x : a) x = real();
  const Weights w = weights(p);
  const std::vector<float> all = product<float>(table().f32, p, a, p.k, w, true);
  for (int64_t rows : {1, 2, 3, 5, 10}) {
    Problem some = p;
    some.rows = rows;
    const std::vector<float> c = product<float>(table().f32, some, a, p.k, w, false);
    const int64_t width = p.groups * p.width;
    each<float>(some, c, [&](float x, int64_t r, int64_t row) {
      const int64_t j = row % p.n, place = row / p.n * p.width + j % p.width;
      ASSERT_EQ(x, all[static_cast<size_t>((j / p.width * p.rows + r) * width + place)]) << rows;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, ByteRowsTest,
                         ::testing::Values(Case{Isa::kGeneric}, Case{Isa::kAvx2}, Case{Isa::kAvx512},
                                           Case{Isa::kAvx512, true}),
                         [](const auto& test) {
                           return std::string(name_of(test.param.isa)) + (test.param.without_bytes ? "_words" : "");
                         });

}  // namespace
}  // namespace weft::runtime::byte_rows_test
