// Memory of a package's step: what is taken never overlaps, and what is given back is taken again.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "packages/plan/memory.h"

namespace weft::package_memory_test {
namespace {

TEST(PackageMemory, WhatIsTakenDoesNotOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    packages::Memory memory;
    memory.bytes = 64;
    std::vector<std::pair<int64_t, int64_t>> taken;  // offset, bytes
    int64_t most = 0, now = 0;
    for (int step = 0; step < 300; ++step) {
      if (!taken.empty() && random() % 5 < 2) {
        const auto each = taken.begin() + static_cast<std::ptrdiff_t>(random() % taken.size());
        memory.give_back(each->first, each->second);
        now -= each->second;
        taken.erase(each);
        continue;
      }
      const int64_t size = static_cast<int64_t>(random() % 9) * 16;
      const int64_t offset = memory.take(size);
      EXPECT_GE(offset, 64);
      EXPECT_EQ(offset % 16, 0);
      EXPECT_LE(offset + size, memory.bytes);
      for (const auto& [other, bytes] : taken)
        EXPECT_TRUE(size == 0 || bytes == 0 || offset + size <= other || other + bytes <= offset);
      taken.emplace_back(offset, size);
      most = std::max(most, now += size);
    }
    EXPECT_GE(memory.bytes, 64 + most);
    for (const auto& [offset, bytes] : taken) memory.give_back(offset, bytes);
    const int64_t all = memory.bytes - 64;
    EXPECT_EQ(memory.take(all), 64);  // all gaps are one again
    EXPECT_EQ(memory.bytes, 64 + all);
  }
}

TEST(PackageMemory, TheSmallestGapIsTaken) {
  packages::Memory memory;
  const int64_t large = memory.take(128), between = memory.take(16), little = memory.take(32), end = memory.take(16);
  memory.give_back(large, 128);
  memory.give_back(little, 32);
  EXPECT_EQ(memory.take(32), little);
  EXPECT_EQ(memory.take(64), large);
  EXPECT_EQ(memory.take(64), large + 64);
  EXPECT_EQ(memory.take(16), 192);
  EXPECT_EQ(between, 128);
  EXPECT_EQ(end, 176);
}

}  // namespace
}  // namespace weft::package_memory_test
