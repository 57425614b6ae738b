#include "runtime/kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/settings.h"

namespace weft::runtime::kernels_test {
namespace {

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};
template <typename T>
using Buffer = std::unique_ptr<T[], FreeMemory>;

/// 64-byte aligned, with a guard of NaNs behind it that no kernel may use.
template <typename T>
Buffer<T> buffer(int64_t elements) {
  const size_t bytes = (static_cast<size_t>(elements) * sizeof(T) / 64 + 2) * 64;
  T* data = static_cast<T*>(std::aligned_alloc(64, bytes));
  std::fill(data, data + bytes / sizeof(T), std::numeric_limits<T>::quiet_NaN());
  return Buffer<T>(data);
}

struct Case {
  Isa isa;
  DType dtype;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(name_of(info.param.isa)) + "_" + std::string(name_of(info.param.dtype));
}

class KernelsTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!supports(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam().isa);
  }
  const DTypeKernels& table() const { return kernels(GetParam().isa, GetParam().dtype); }

  /// Runs `body` with a value of the element type.
  template <typename Body>
  void with_type(Body body) {
    if (GetParam().dtype == DType::kF32) {
      body(float{});
    } else {
      body(double{});
    }
  }

  template <typename T>
  void fill(T* data, int64_t elements) {
    std::uniform_real_distribution<T> uniform(-1, 1);
    for (int64_t i = 0; i < elements; ++i) data[i] = uniform(random_);
  }

  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  std::mt19937_64 random_{20240611};
};

INSTANTIATE_TEST_SUITE_P(All, KernelsTest,
                         ::testing::Values(Case{Isa::kGeneric, DType::kF32}, Case{Isa::kGeneric, DType::kF64},
                                           Case{Isa::kAvx2, DType::kF32}, Case{Isa::kAvx2, DType::kF64},
                                           Case{Isa::kAvx512, DType::kF32}, Case{Isa::kAvx512, DType::kF64}),
                         case_name);

template <typename T>
constexpr int64_t kUnit = 64 / sizeof(T);

/// The rounding error that a sum of `terms` products in [-1, 1] may have.
template <typename T>
double tolerance(int64_t terms) {
  return (4 + static_cast<double>(terms)) * std::numeric_limits<T>::epsilon();
}

TEST_P(KernelsTest, TileAgreesWithTheDefinition) {
  with_type([&]<typename T>(T) {
    for (int trial = 0; trial < 300; ++trial) {
      const int64_t vectors = between(1, target::kMaxPanelUnits), width = vectors * kUnit<T>;
      const int64_t rows = trial < 40 ? trial : between(0, 70);
      const bool has_parts = trial % 25 == 24;  // of steps, which several blocks of rows go over one by one
      const int64_t k = has_parts ? between(510, 1600) : trial % 7 == 0 ? between(0, 3) : between(0, 140);
      const int64_t lda = k + between(0, 5), ldc = width + between(0, 9), offset = between(0, 3);
      const bool accumulate = between(0, 1) != 0;
      auto a = buffer<T>(rows * lda + offset), panel = buffer<T>(k * width), c = buffer<T>(rows * ldc + offset);
      for (int64_t r = 0; r < rows; ++r) fill(&a[offset + r * lda], k);
      fill(panel.get(), k * width);
      if (accumulate)
        for (int64_t r = 0; r < rows; ++r) fill(&c[offset + r * ldc], width);
      auto before = buffer<T>(rows * ldc + offset);
      std::memcpy(before.get(), c.get(), static_cast<size_t>(rows * ldc + offset) * sizeof(T));
      table().tile[vectors](rows, k, &a[offset], lda, panel.get(), &c[offset], ldc, accumulate);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < ldc; ++j) {
          const int64_t at = offset + r * ldc + j;
          if (j >= width) {
            ASSERT_TRUE(std::isnan(c[at])) << "written beyond the panel";
            continue;
          }
          double sum = accumulate ? before[at] : 0.0;
          for (int64_t i = 0; i < k; ++i) sum += double(a[offset + r * lda + i]) * double(panel[i * width + j]);
          ASSERT_NEAR(c[at], sum, tolerance<T>(k)) << "rows " << rows << " k " << k << " vectors " << vectors;
        }
      }
    }
  });
}

TEST_P(KernelsTest, TileGivesARowTheSameBitsWhateverTheRowsBesideIt) {
  with_type([&]<typename T>(T) {
    for (int64_t vectors = 1; vectors <= target::kMaxPanelUnits; ++vectors) {
      const int64_t width = vectors * kUnit<T>, rows = 37, k = vectors % 2 == 0 ? 93 : 1100;  // one part, and three
      auto a = buffer<T>(rows * k), panel = buffer<T>(k * width), all = buffer<T>(rows * width);
      fill(a.get(), rows * k);
      fill(panel.get(), k * width);
      table().tile[vectors](rows, k, a.get(), k, panel.get(), all.get(), width, 0);
      for (int64_t count = 1; count <= 20; ++count) {
        for (int64_t first = 0; first + count <= rows; first += count) {
          auto some = buffer<T>(count * width);
          table().tile[vectors](count, k, &a[first * k], k, panel.get(), some.get(), width, 0);
          ASSERT_EQ(std::memcmp(some.get(), &all[first * width], static_cast<size_t>(count * width) * sizeof(T)), 0)
              << "vectors " << vectors << " rows " << first << " to " << first + count;
        }
      }
    }
  });
}

TEST_P(KernelsTest, SeveralPanelsHaveTheBitsOfOneAtATime) {
  with_type([&]<typename T>(T) {
    for (int trial = 0; trial < 200; ++trial) {
      const int64_t vectors = between(1, target::kMaxPanelUnits), width = vectors * kUnit<T>, count = between(0, 19);
      const int64_t rows = between(0, 9), k = between(0, 60), lda = k + 1, accumulate = between(0, 1);
      // Rows of all panels side by side, or each panel's rows one after another.
      const bool side_by_side = between(0, 1) != 0;
      const int64_t ldc = side_by_side ? count * width + 3 : width, c_step = side_by_side ? width : rows * width;
      auto a = buffer<T>(rows * lda), panels = buffer<T>(count * k * width);
      auto c = buffer<T>(rows * count * width + 3 * rows), expected = buffer<T>(rows * count * width + 3 * rows);
      fill(a.get(), rows * lda);
      fill(panels.get(), count * k * width);
      fill(c.get(), rows * count * width + 3 * rows);
      std::copy_n(c.get(), rows * count * width + 3 * rows, expected.get());
      table().tile_panels[vectors](rows, k, a.get(), lda, panels.get(), count, c.get(), ldc, c_step, accumulate);
      for (int64_t p = 0; p < count; ++p)
        table().tile[vectors](rows, k, a.get(), lda, &panels[p * k * width], &expected[p * c_step], ldc, accumulate);
      ASSERT_EQ(std::memcmp(c.get(), expected.get(), (rows * count * width + 3 * rows) * sizeof(T)), 0)
          << "vectors " << vectors << " panels " << count << " rows " << rows;
    }
  });
}

TEST_P(KernelsTest, TilePropagatesNanAndInfinity) {
  with_type([&]<typename T>(T) {
    const int64_t width = 3 * kUnit<T>, k = 5, rows = 9;
    auto a = buffer<T>(rows * k), panel = buffer<T>(k * width), c = buffer<T>(rows * width);
    std::fill_n(a.get(), rows * k, T(1));
    std::fill_n(panel.get(), k * width, T(2));
    a[0 * k + 2] = std::numeric_limits<T>::quiet_NaN();
    a[4 * k + 1] = std::numeric_limits<T>::infinity();
    table().tile[3](rows, k, a.get(), k, panel.get(), c.get(), width, 0);
    for (int64_t j = 0; j < width; ++j) {
      ASSERT_TRUE(std::isnan(c[j]));
      ASSERT_EQ(c[1 * width + j], T(10));
      ASSERT_EQ(c[4 * width + j], std::numeric_limits<T>::infinity());
    }
  });
}

TEST_P(KernelsTest, PackLaysOutEveryElementAndPadsWithZeros) {
  with_type([&]<typename T>(T) {
    for (int trial = 0; trial < 200; ++trial) {
      const int64_t groups = between(1, 4), unroll = between(1, 4), lanes = kUnit<T>;
      const int64_t n = between(0, 3 * unroll * lanes), k = trial % 5 == 0 ? between(0, 3) : between(0, 150);
      const bool transposed = between(0, 1) != 0;
      const int64_t rows = transposed ? groups * n : k, columns = transposed ? k : groups * n;
      const int64_t ld = columns + between(0, 5), panels = (n + unroll * lanes - 1) / (unroll * lanes);
      auto source = buffer<T>(rows * ld);
      for (int64_t r = 0; r < rows; ++r) fill(&source[r * ld], columns);
      const int64_t width = groups * unroll * lanes;
      auto packed = buffer<T>(panels * k * width);
      const PackArgs args{source.get(), packed.get(), k, n, groups, unroll, ld, transposed};
      const int64_t middle = between(0, panels);  // two calls, as two threads would
      table().pack(args, middle, panels);
      table().pack(args, 0, middle);
      for (int64_t p = 0; p < panels; ++p) {
        for (int64_t i = 0; i < k; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            const int64_t g = j / (unroll * lanes), column = p * unroll * lanes + j % (unroll * lanes);
            T expected = 0;
            if (column < n) expected = transposed ? source[(g * n + column) * ld + i] : source[i * ld + g * n + column];
            ASSERT_EQ(packed[(p * k + i) * width + j], expected) << "panel " << p << " k " << i << " column " << j;
          }
        }
      }
      ASSERT_TRUE(std::isnan(packed[panels * k * width])) << "written beyond the last panel";
    }
  });
}

/// c by outer() from `rectangles` given by their bounds.
template <typename T>
struct OuterCase {
  int64_t rows, m, n, lda, ldb, ldc;
  Buffer<T> a, b;

  Buffer<T> run(const DTypeKernels& table, const std::vector<int64_t>& m_bounds,
                const std::vector<int64_t>& n_bounds) const {
    auto c = buffer<T>(m * ldc);
    auto scratch = buffer<char>(table.outer_scratch_bytes / static_cast<int64_t>(sizeof(char)));
    const OuterArgs args{a.get(), b.get(), c.get(), rows, m, n, lda, ldb, ldc};
    for (size_t i = 0; i + 1 < m_bounds.size(); ++i)
      for (size_t j = 0; j + 1 < n_bounds.size(); ++j)
        table.outer(args, m_bounds[i], m_bounds[i + 1], n_bounds[j], n_bounds[j + 1], scratch.get());
    return c;
  }
};

TEST_P(KernelsTest, OuterAgreesWithTheDefinition) {
  with_type([&]<typename T>(T) {
    for (int trial = 0; trial < 60; ++trial) {
      OuterCase<T> outer;
      outer.rows = trial % 4 == 0 ? between(0, 5) : between(0, 600);
      outer.m = between(0, trial % 3 == 0 ? 300 : 40);
      outer.n = between(0, trial % 5 == 0 ? 300 : 70);
      outer.lda = outer.m + between(0, 4);
      outer.ldb = outer.n + between(0, 4);
      outer.ldc = outer.n + between(0, 4);
      outer.a = buffer<T>(outer.rows * outer.lda);
      outer.b = buffer<T>(outer.rows * outer.ldb);
      for (int64_t r = 0; r < outer.rows; ++r) {
        fill(&outer.a[r * outer.lda], outer.m);
        fill(&outer.b[r * outer.ldb], outer.n);
      }
      const auto c = outer.run(table(), {0, outer.m}, {0, outer.n});
      std::vector<double> expected(static_cast<size_t>(outer.m * outer.n));
      for (int64_t r = 0; r < outer.rows; ++r)
        for (int64_t m = 0; m < outer.m; ++m)
          for (int64_t n = 0; n < outer.n; ++n)
            expected[m * outer.n + n] += double(outer.a[r * outer.lda + m]) * double(outer.b[r * outer.ldb + n]);
      for (int64_t m = 0; m < outer.m; ++m) {
        for (int64_t n = 0; n < outer.ldc; ++n) {
          if (n < outer.n) {
            ASSERT_NEAR(c[m * outer.ldc + n], expected[m * outer.n + n], tolerance<T>(outer.rows));
          } else {
            ASSERT_TRUE(std::isnan(c[m * outer.ldc + n])) << "written beyond the row";
          }
        }
      }
    }
  });
}

TEST_P(KernelsTest, OuterOfRectanglesHasTheBitsOfTheWhole) {
  with_type([&]<typename T>(T) {
    OuterCase<T> outer{600, 190, 250, 190, 250, 250, buffer<T>(600 * 190), buffer<T>(600 * 250)};
    fill(outer.a.get(), 600 * 190);
    fill(outer.b.get(), 600 * 250);
    const auto whole = outer.run(table(), {0, 190}, {0, 250});
    const int64_t step_m = table().outer_block_m, step_n = table().outer_block_n;
    const auto parts = outer.run(table(), {0, step_m, 3 * step_m, 190}, {0, step_n, 2 * step_n, 250});
    EXPECT_EQ(std::memcmp(whole.get(), parts.get(), 190 * 250 * sizeof(T)), 0);
  });
}

TEST_P(KernelsTest, OuterOfManyColumnsCrossesItsParts) {
  with_type([&]<typename T>(T) {
    const int64_t rows = 3, m = 1100, n = 400;
    OuterCase<T> outer{rows, m, n, m, n, n, buffer<T>(rows * m), buffer<T>(rows * n)};
    fill(outer.a.get(), rows * m);
    fill(outer.b.get(), rows * n);
    const auto c = outer.run(table(), {0, m}, {0, n});
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t r = 0; r < rows; ++r) sum += double(outer.a[r * m + i]) * double(outer.b[r * n + j]);
        ASSERT_NEAR(c[i * n + j], sum, tolerance<T>(rows));
      }
    }
  });
}

/// A product of matrices with room between their rows.
template <typename T>
struct GemmCase {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  int64_t lda, ldb, ldc;
  Buffer<T> a, b;

  Buffer<T> run(const DTypeKernels& table, const std::vector<int64_t>& m_bounds,
                const std::vector<int64_t>& n_bounds) const {
    auto c = buffer<T>(m * ldc);
    auto scratch = buffer<T>(std::max<int64_t>(1, k) * table.gemm_block_n);
    const GemmArgs args{a.get(), b.get(), c.get(), m, n, k, lda, ldb, ldc, transpose_a, transpose_b};
    for (size_t i = 0; i + 1 < m_bounds.size(); ++i)
      for (size_t j = 0; j + 1 < n_bounds.size(); ++j)
        table.gemm(args, m_bounds[i], m_bounds[i + 1], n_bounds[j], n_bounds[j + 1], scratch.get());
    return c;
  }
};

TEST_P(KernelsTest, GemmAgreesWithTheDefinition) {
  with_type([&]<typename T>(T) {
    for (int trial = 0; trial < 120; ++trial) {
      GemmCase<T> gemm{};
      gemm.m = between(0, trial % 3 == 0 ? 5 : 60);
      gemm.n = between(0, trial % 5 == 0 ? 300 : 70);
      gemm.k = between(0, trial % 4 == 0 ? 3 : 200);
      gemm.transpose_a = trial % 2 == 0;
      gemm.transpose_b = trial % 4 >= 2;
      const int64_t a_rows = gemm.transpose_a ? gemm.k : gemm.m, b_rows = gemm.transpose_b ? gemm.n : gemm.k;
      const int64_t a_columns = gemm.transpose_a ? gemm.m : gemm.k, b_columns = gemm.transpose_b ? gemm.k : gemm.n;
      gemm.lda = a_columns + between(0, 4);
      gemm.ldb = b_columns + between(0, 4);
      gemm.ldc = gemm.n + between(0, 4);
      gemm.a = buffer<T>(a_rows * gemm.lda);
      gemm.b = buffer<T>(b_rows * gemm.ldb);
      for (int64_t r = 0; r < a_rows; ++r) fill(&gemm.a[r * gemm.lda], a_columns);
      for (int64_t r = 0; r < b_rows; ++r) fill(&gemm.b[r * gemm.ldb], b_columns);
      const auto c = gemm.run(table(), {0, gemm.m}, {0, gemm.n});
      for (int64_t m = 0; m < gemm.m; ++m) {
        for (int64_t n = 0; n < gemm.n; ++n) {
          double expected = 0;
          for (int64_t k = 0; k < gemm.k; ++k)
            expected += double(gemm.a[gemm.transpose_a ? k * gemm.lda + m : m * gemm.lda + k]) *
                        double(gemm.b[gemm.transpose_b ? n * gemm.ldb + k : k * gemm.ldb + n]);
          ASSERT_NEAR(c[m * gemm.ldc + n], expected, tolerance<T>(gemm.k)) << "trial " << trial;
        }
        for (int64_t n = gemm.n; n < gemm.ldc; ++n)
          ASSERT_TRUE(std::isnan(c[m * gemm.ldc + n])) << "written beyond the row";
      }
    }
  });
}

TEST_P(KernelsTest, GemmOfRectanglesHasTheBitsOfTheWhole) {
  with_type([&]<typename T>(T) {
    for (int64_t m : {2, 17, 90})
      for (bool transposed : {false, true}) {
        GemmCase<T> gemm{m, 190, 70, false, transposed, 70, transposed ? 70 : 190, 190, {}, {}};
        gemm.a = buffer<T>(m * 70);
        gemm.b = buffer<T>(70 * 190);
        fill(gemm.a.get(), m * 70);
        fill(gemm.b.get(), 70 * 190);
        const int64_t step = table().gemm_block_n;
        const auto whole = gemm.run(table(), {0, m}, {0, 190});
        const auto parts = gemm.run(table(), {0, 1, m / 2, m}, {0, step, 3 * step, 190});
        EXPECT_EQ(std::memcmp(whole.get(), parts.get(), static_cast<size_t>(m) * 190 * sizeof(T)), 0);
      }
  });
}

TEST_P(KernelsTest, FoldAgreesWithTheDefinition) {
  const FoldKernels& folds = fold_kernels(GetParam().isa);
  const size_t place = GetParam().dtype == DType::kF32 ? 0 : 1;
  with_type([&]<typename T>(T) {
    for (int trial = 0; trial < 60; ++trial) {
      const int64_t rows = between(0, 700);
      const int64_t columns = trial % 3 == 0 ? 1 : between(1, trial % 5 == 0 ? 1100 : 40);
      const int64_t ld = columns + (trial % 2 ? between(0, 4) : 0);
      auto x = buffer<T>(rows * ld);
      for (int64_t r = 0; r < rows; ++r) fill(&x[r * ld], columns);
      auto sum = buffer<T>(columns), max = buffer<T>(columns);
      std::fill_n(sum.get(), columns, T(1));
      std::fill_n(max.get(), columns, T(-2));
      folds.sum[place](x.get(), rows, ld, sum.get(), columns);
      folds.max[place](x.get(), rows, ld, max.get(), columns);
      for (int64_t c = 0; c < columns; ++c) {
        double total = 1;
        T largest = -2;
        for (int64_t r = 0; r < rows; ++r) {
          total += double(x[r * ld + c]);
          largest = std::max(largest, x[r * ld + c]);
        }
        ASSERT_NEAR(sum[c], total, tolerance<T>(rows));
        ASSERT_EQ(max[c], largest);
      }
    }
  });
}

TEST_P(KernelsTest, FoldKeepsNanAndWraps) {
  const FoldKernels& folds = fold_kernels(GetParam().isa);
  for (int64_t at : {0, 3, 70, 299}) {
    std::vector<float> x(300, 1.0f);
    x[static_cast<size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
    float row = 0, column[3] = {0, 0, 0};
    folds.max[0](x.data(), 300, 1, &row, 1);
    folds.max[0](x.data(), 100, 3, column, 3);
    EXPECT_TRUE(std::isnan(row));
    for (int c = 0; c < 3; ++c) EXPECT_EQ(std::isnan(column[c]), c == at % 3);
  }
  std::vector<int32_t> x(100, std::numeric_limits<int32_t>::max());
  int32_t sum = 0, max = -5;
  folds.sum[2](x.data(), 100, 1, &sum, 1);
  folds.max[2](x.data(), 100, 1, &max, 1);
  EXPECT_EQ(sum, -100);
  EXPECT_EQ(max, std::numeric_limits<int32_t>::max());
}

TEST_P(KernelsTest, ColumnSumAgreesWithTheDefinition) {
  with_type([&]<typename T>(T) {
    for (int trial = 0; trial < 100; ++trial) {
      const bool narrow = trial % 3 == 0;  // often without anything between its rows
      const int64_t rows = between(0, narrow ? 9000 : 700);
      const int64_t columns = narrow ? between(1, 17) : between(0, trial % 9 == 1 ? 2300 : 90);
      const int64_t lda = columns + (narrow && trial % 2 == 0 ? 0 : between(0, 5));
      const int64_t c0 = lda == columns ? 0 : between(0, columns), c1 = lda == columns ? columns : between(c0, columns);
      auto a = buffer<T>(rows * lda), out = buffer<T>(columns);
      for (int64_t r = 0; r < rows; ++r) fill(&a[r * lda], columns);
      table().column_sum(a.get(), rows, lda, out.get(), c0, c1);
      for (int64_t c = 0; c < columns; ++c) {
        if (c < c0 || c >= c1) {
          ASSERT_TRUE(std::isnan(out[c])) << "written outside the columns asked for";
          continue;
        }
        double sum = 0;
        for (int64_t r = 0; r < rows; ++r) sum += double(a[r * lda + c]);
        ASSERT_NEAR(out[c], sum, tolerance<T>(rows));
      }
    }
  });
}

TEST_P(KernelsTest, LongColumnSumsStayPrecise) {
  with_type([&]<typename T>(T) {
    const int64_t rows = 1'000'000;
    std::vector<T> a(rows, T(0.1));
    T sum = 0;
    table().column_sum(a.data(), rows, 1, &sum, 0, 1);
    EXPECT_NEAR(sum / (double(T(0.1)) * rows), 1, 1000 * std::numeric_limits<T>::epsilon());
  });
}

}  // namespace
}  // namespace weft::runtime::kernels_test
