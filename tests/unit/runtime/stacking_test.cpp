#include "runtime/memory/stacking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::runtime::stacking_test {
namespace {

class StackingTest : public ::testing::Test {
 protected:
  int64_t up_to(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }

  std::vector<Reservation> random_reservations(int64_t count, int64_t times, int64_t most_bytes) {
    std::vector<Reservation> all;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = up_to(times - 1);
      const int64_t longest = up_to(3) == 0 ? times - 1 - first : std::min<int64_t>(3, times - 1 - first);
      all.push_back({1 + up_to(most_bytes - 1), first, first + up_to(longest)});
    }
    return all;
  }

  static void expect_apart(const std::vector<Reservation>& all, const std::vector<int64_t>& bytes,
                           const std::vector<int64_t>& offsets, int64_t end) {
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_GE(offsets[i], 0);
      ASSERT_LE(offsets[i] + bytes[i], end);
      for (size_t j = 0; j < i; ++j) {
        if (all[i].last < all[j].first || all[j].last < all[i].first) continue;
        ASSERT_TRUE(offsets[i] + bytes[i] <= offsets[j] || offsets[j] + bytes[j] <= offsets[i]) << i << " and " << j;
      }
    }
  }

  static std::vector<int64_t> bytes_of(const std::vector<Reservation>& all) {
    std::vector<int64_t> bytes;
    for (const Reservation& one : all) bytes.push_back(one.bytes);
    return bytes;
  }

  /// The most bytes that are live at one time: no layout needs less.
  static int64_t load(const std::vector<Reservation>& all) {
    int64_t most = 0;
    for (const Reservation& at : all) {
      int64_t sum = 0;
      for (const Reservation& one : all)
        if (one.first <= at.first && at.first <= one.last) sum += one.bytes;
      most = std::max(most, sum);
    }
    return most;
  }

  std::mt19937 random_{7};
};

TEST_F(StackingTest, WhatIsTakenTogetherLiesApartWhateverTheSizes) {
  for (int round = 0; round < 40; ++round) {
    const auto all = random_reservations(1 + up_to(150), 1 + up_to(60), round % 2 == 0 ? 4 : 1000);
    const Stacking stacking = stack(all);
    std::vector<int64_t> offsets(all.size());
    std::vector<int64_t> bytes = bytes_of(all);
    expect_apart(all, bytes, offsets, stacking.offsets(bytes, offsets));
    for (int64_t& size : bytes) size = up_to(500);
    expect_apart(all, bytes, offsets, stacking.offsets(bytes, offsets));
  }
}

TEST_F(StackingTest, NestedTimesOfOneSizeTakeNoMoreThanTheyMust) {
  // As in a network's backward: layer n - i reads last the values that layer i keeps. Each has memory of its own for
  // one step, whose place the next one takes.
  std::vector<Reservation> all;
  for (int64_t i = 0; i < 100; ++i) {
    all.push_back({64, 2 * i, 500 - 2 * i});
    all.push_back({64, 2 * i, 2 * i + 1});
  }
  const Stacking stacking = stack(all);
  std::vector<int64_t> offsets(all.size());
  EXPECT_EQ(stacking.offsets(bytes_of(all), offsets), load(all));
}

TEST_F(StackingTest, SmallOnesFillTheGapsUnderLargeOnes) {
  // The second stands on the first; the third fits under it, once the first has gone.
  const std::vector<Reservation> all = {{100, 0, 4}, {90, 4, 9}, {80, 6, 8}};
  const Stacking stacking = stack(all);
  std::vector<int64_t> offsets(all.size());
  EXPECT_EQ(stacking.offsets(bytes_of(all), offsets), 190);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 100, 0}));
}

TEST_F(StackingTest, RandomTimesTakeLittleMoreThanTheyMust) {
  for (int round = 0; round < 10; ++round) {
    const auto all = random_reservations(400, 200, 200);
    const Stacking stacking = stack(all);
    std::vector<int64_t> offsets(all.size());
    EXPECT_LE(stacking.offsets(bytes_of(all), offsets), load(all) * 13 / 10);
  }
}

TEST_F(StackingTest, WhatStandsOnWhatIsLinear) {
  for (int64_t count : {1000, 4000, 16000}) {
    const Stacking stacking = stack(random_reservations(count, count, 1000));
    EXPECT_EQ(std::ssize(stacking.order), count);
    EXPECT_LE(std::ssize(stacking.below), 3 * count);
  }
}

}  // namespace
}  // namespace weft::runtime::stacking_test
