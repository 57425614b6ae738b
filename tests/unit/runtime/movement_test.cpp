#include "runtime/kernels/movement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>

#include "base/error.h"

namespace weft::runtime::movement_test {
namespace {

std::mt19937_64 random_engine(7);

int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_engine); }

std::vector<char> random_bytes(int64_t count) {
  std::vector<char> bytes(static_cast<size_t>(count));
  for (char& b : bytes) b = static_cast<char>(between(-128, 127));
  return bytes;
}

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Element by element, as the definition says.
std::vector<char> transposed(const std::vector<char>& source, const std::vector<int64_t>& sizes,
                             const std::vector<int64_t>& perm, int64_t element) {
  std::vector<char> result(source.size());
  std::vector<int64_t> at(sizes.size(), 0);
  for (int64_t i = 0; i < product(sizes); ++i) {
    int64_t to = 0;
    for (int64_t d : perm) to = to * sizes[d] + at[d];
    std::memcpy(&result[to * element], &source[i * element], static_cast<size_t>(element));
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++at[d] < sizes[d]) break;
      at[d] = 0;
    }
  }
  return result;
}

/// Runs all units in random pieces and order, as threads might.
void run_in_pieces(const StridedCopy& copy, const void* source, void* destination) {
  std::vector<int64_t> cuts{0, copy.units()};
  for (int i = 0; i < 3; ++i) cuts.push_back(between(0, copy.units()));
  std::sort(cuts.begin(), cuts.end());
  for (size_t i = cuts.size() - 1; i-- > 0;) copy.run(source, destination, cuts[i], cuts[i + 1]);
}

/// Dense row-major `sizes` to their permutation: dim i of the result is dim perm[i] of the source.
StridedCopy transpose_copy(std::span<const int64_t> sizes, std::span<const int64_t> perm, int64_t element_size) {
  for (int64_t size : sizes)
    if (size == 0) return StridedCopy(std::array<CopyDim, 1>{{{0, 0, 0}}}, element_size);  // the others may overflow
  InlineVector<int64_t, kMaxCopyDims> steps(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) steps[d - 1] = steps[d] * sizes[d];
  InlineVector<CopyDim, kMaxCopyDims> dims(sizes.size(), {1, 0, 0});
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    const auto from = static_cast<size_t>(perm[d]);
    dims[d] = {sizes[from], steps[from], step};
    step *= sizes[from];
  }
  return StridedCopy(dims, element_size);
}

TEST(TransposeCopyTest, AgreesWithTheDefinition) {
  for (int trial = 0; trial < 600; ++trial) {
    const int64_t rank = between(0, 8), element = int64_t{1} << between(0, 3);
    std::vector<int64_t> sizes(static_cast<size_t>(rank)), perm(static_cast<size_t>(rank));
    const int64_t most = rank <= 2 ? 200 : rank <= 3 ? 40 : rank <= 5 ? 7 : 3;
    for (int64_t& size : sizes) size = trial % 10 == 0 ? between(0, 2) : between(1, most);
    std::iota(perm.begin(), perm.end(), 0);
    if (trial % 3 != 0) std::shuffle(perm.begin(), perm.end(), random_engine);
    if (trial % 3 == 0 && rank > 1) std::swap(perm[rank - 1], perm[rank - 2]);
    const auto source = random_bytes(product(sizes) * element);
    auto result = random_bytes(product(sizes) * element);
    const StridedCopy copy = transpose_copy(sizes, perm, element);
    run_in_pieces(copy, source.data(), result.data());
    ASSERT_EQ(result, transposed(source, sizes, perm, element)) << "trial " << trial;
  }
}

TEST(TransposeCopyTest, BatchFirstToTimeFirstIsRowCopies) {
  const std::vector<int64_t> sizes{5, 7, 12}, perm{1, 0, 2};
  const auto source = random_bytes(5 * 7 * 12 * 4);
  auto result = random_bytes(5 * 7 * 12 * 4);
  const StridedCopy copy = transpose_copy(sizes, perm, 4);
  EXPECT_EQ(copy.units(), 7) << "five rows of 48 bytes are one unit";
  run_in_pieces(copy, source.data(), result.data());
  EXPECT_EQ(result, transposed(source, sizes, perm, 4));
}

TEST(TransposeCopyTest, RowsOfAllLengths) {
  const std::vector<int64_t> perm{1, 0, 2};
  for (const int64_t element : {1, 2, 4, 8})
    for (const int64_t row : {1, 2, 3, 4, 8, 16, 17, 32, 64, 1030}) {
      const std::vector<int64_t> sizes{3, 41, row};
      const auto source = random_bytes(3 * 41 * row * element);
      auto result = random_bytes(3 * 41 * row * element);
      run_in_pieces(transpose_copy(sizes, perm, element), source.data(), result.data());
      EXPECT_EQ(result, transposed(source, sizes, perm, element)) << row << " elements of " << element << " bytes";
    }
}

TEST(TransposeCopyTest, LongRunsAreManyUnits) {
  const std::vector<int64_t> sizes{10'000'000}, perm{0};
  EXPECT_GE(transpose_copy(sizes, perm, 4).units(), 100);
}

TEST(TransposeCopyTest, NoElementsAreNoUnits) {
  const std::vector<int64_t> sizes{3, 0, 2}, perm{2, 1, 0};
  EXPECT_EQ(transpose_copy(sizes, perm, 8).units(), 0);
}

TEST(TransposeCopyTest, OtherElementSizesAreRefused) {
  const std::vector<int64_t> sizes{3}, perm{0};
  EXPECT_THROW(transpose_copy(sizes, perm, 3), InternalError);
}

TEST(StridedCopyTest, ReversesAndRepeatsAndSlices) {
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t rank = between(1, 5);
    std::vector<CopyDim> dims(static_cast<size_t>(rank));
    std::vector<int64_t> order(dims.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_engine);
    // Source: a dense tensor with gaps in any order of dims, some reversed, some repeated. Destination: with gaps too.
    int64_t source_step = 1, source_first = 0, destination_step = 1;
    for (int64_t d : order) {
      dims[d].size = between(1, rank == 1 ? 300 : rank == 2 ? 90 : 8);
      const int64_t kind = between(0, 4);
      dims[d].source_step = kind == 0 ? 0 : kind == 1 ? -source_step : source_step;
      if (kind == 1) source_first += (dims[d].size - 1) * source_step;
      if (kind != 0) source_step *= dims[d].size + (kind == 2 ? 1 : 0);
    }
    for (size_t d = dims.size(); d-- > 0;) {
      dims[d].destination_step = destination_step;
      destination_step *= dims[d].size + (between(0, 3) == 0 ? 2 : 0);
    }
    std::vector<int32_t> source(static_cast<size_t>(source_step));
    std::iota(source.begin(), source.end(), 1);
    std::vector<int32_t> result(static_cast<size_t>(destination_step), -1), expected = result;
    std::vector<int64_t> at(dims.size(), 0);
    int64_t count = 1;
    for (const CopyDim& dim : dims) count *= dim.size;
    for (int64_t i = 0; i < count; ++i) {
      int64_t from = source_first, to = 0;
      for (size_t d = 0; d < dims.size(); ++d) {
        from += at[d] * dims[d].source_step;
        to += at[d] * dims[d].destination_step;
      }
      expected[to] = source[from];
      for (size_t d = dims.size(); d-- > 0;) {
        if (++at[d] < dims[d].size) break;
        at[d] = 0;
      }
    }
    run_in_pieces(StridedCopy(dims, 4), &source[source_first], result.data());
    ASSERT_EQ(result, expected) << "trial " << trial;
  }
}

template <typename Integer>
RowIndex as_index(const std::vector<Integer>& values) {
  return {values.data(), static_cast<int64_t>(values.size()), sizeof(Integer) == 8};
}

template <typename Integer>
class RowsTest : public ::testing::Test {};
using Integers = ::testing::Types<int32_t, int64_t>;
TYPED_TEST_SUITE(RowsTest, Integers);

TYPED_TEST(RowsTest, GatherTakesRows) {
  const int64_t rows = 11, row_bytes = 13, count = 200;
  const auto table = random_bytes(rows * row_bytes);
  std::vector<TypeParam> values(count);
  for (auto& value : values) value = static_cast<TypeParam>(between(0, rows - 1));
  std::vector<char> result(count * row_bytes);
  EXPECT_EQ(gather_rows(table.data(), rows, row_bytes, as_index(values), result.data(), 90, count), std::nullopt);
  EXPECT_EQ(gather_rows(table.data(), rows, row_bytes, as_index(values), result.data(), 0, 90), std::nullopt);
  for (int64_t i = 0; i < count; ++i)
    ASSERT_EQ(std::memcmp(&result[i * row_bytes], &table[values[i] * row_bytes], row_bytes), 0);
}

TYPED_TEST(RowsTest, GatherReturnsTheIndexOutOfRange) {
  const std::vector<char> table(30);
  std::vector<char> result(30);
  for (TypeParam bad : {-1, 3, 1000}) {
    const std::vector<TypeParam> values{0, 2, bad};
    EXPECT_EQ(gather_rows(table.data(), 3, 10, as_index(values), result.data(), 0, 3), bad);
    EXPECT_EQ(gather_rows(table.data(), 3, 10, as_index(values), result.data(), 0, 2), std::nullopt);
    EXPECT_EQ(first_out_of_range(as_index(values), 3, 0, 3), bad);
  }
}

TYPED_TEST(RowsTest, GatherFromNothing) {
  const std::vector<TypeParam> none;
  EXPECT_EQ(gather_rows(nullptr, 0, 10, as_index(none), nullptr, 0, 0), std::nullopt);
  const std::vector<TypeParam> one{0};
  EXPECT_EQ(gather_rows(nullptr, 0, 10, as_index(one), nullptr, 0, 1), 0);
}

TYPED_TEST(RowsTest, ScatterAddSumsInOrderWhateverTheSplit) {
  const int64_t rows = 9, columns = 37, count = 300;
  std::vector<TypeParam> values(count);
  for (auto& value : values) value = static_cast<TypeParam>(between(0, rows - 2));  // the last row gets nothing
  std::vector<float> updates(count * columns), expected(rows * columns, 0.0F), table(rows * columns, -7.0F);
  for (float& update : updates) update = std::uniform_real_distribution<float>(-1, 1)(random_engine);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < columns; ++c) expected[values[i] * columns + c] += updates[i * columns + c];
  for (int64_t r = 0; r < rows; r += 5) {
    for (int64_t c = 0; c < columns; c += 16) {
      EXPECT_EQ(scatter_add_rows(as_index(values), updates.data(), table.data(), rows, columns, r,
                                 std::min(r + 5, rows), c, std::min(c + 16, columns)),
                std::nullopt);
    }
  }
  EXPECT_EQ(table, expected);
}

TYPED_TEST(RowsTest, ScatterAddReturnsTheIndexOutOfRangeAndWritesNothing) {
  const std::vector<TypeParam> values{0, 5};
  const std::vector<double> updates(2 * 4, 1.0);
  std::vector<double> table(5 * 4, 3.0);
  EXPECT_EQ(scatter_add_rows(as_index(values), updates.data(), table.data(), 5, 4, 0, 5, 0, 4), 5);
  EXPECT_EQ(table, std::vector<double>(5 * 4, 3.0));
}

}  // namespace
}  // namespace weft::runtime::movement_test
