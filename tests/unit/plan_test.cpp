#include "runtime/plan.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::runtime {
namespace {

BufferPlan buffer(Storage storage, int64_t megabytes, int64_t first, int64_t last) {
  BufferPlan plan;
  plan.storage = storage;
  plan.element_size = 1;
  plan.elements.factor = megabytes << 20;
  plan.first = first;
  plan.last = last;
  return plan;
}

TEST(PlanTest, WhatIsDeadBeforeAnOutputIsWrittenLiesInIt) {
  Plan plan;
  plan.buffers = {buffer(Storage::kOutput, 4, 3, 3), buffer(Storage::kArena, 3, 0, 2), buffer(Storage::kArena, 2, 1, 3),
                  buffer(Storage::kArena, 3, 2, 2)};
  const ArenaLayout layout = lay_out(plan, {}, true);
  EXPECT_EQ(layout.hosts, (std::vector<int64_t>{-1, 0, -1, -1}));
  EXPECT_EQ(layout.bytes, 5 << 20) << "what the output's stage still reads, and what finds no room";
  const ArenaLayout apart = lay_out(plan, {}, false);
  EXPECT_EQ(apart.hosts, (std::vector<int64_t>{-1, -1, -1, -1}));
  EXPECT_EQ(apart.bytes, 8 << 20);
}

TEST(PlanTest, BuffersThatLiveTogetherNeverOverlap) {
  std::mt19937 random(1);
  auto up_to = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    Plan plan;
    for (int64_t i = up_to(12); i >= 0; --i) {
      const int64_t first = up_to(9);
      const auto storage = static_cast<Storage>(up_to(2));
      plan.buffers.push_back(buffer(storage, up_to(6), first, first + up_to(9 - first)));
      plan.buffers.back().copies = storage == Storage::kArena ? 1 + up_to(1) : 1;
    }
    const ArenaLayout layout = lay_out(plan, {}, round % 4 != 0);
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const BufferPlan& a = plan.buffers[i];
      if (a.storage != Storage::kArena) continue;
      const int64_t end = layout.offsets[i] + instance_bytes(a, {}) * a.copies;
      const int64_t host = layout.hosts[i];
      ASSERT_GE(layout.offsets[i], 0);
      if (host < 0) {
        ASSERT_LE(end, layout.bytes);
      } else {
        const BufferPlan& output = plan.buffers[static_cast<size_t>(host)];
        ASSERT_EQ(output.storage, Storage::kOutput);
        ASSERT_LE(end, output.elements.factor);
        ASSERT_LT(a.last, output.first);
      }
      for (size_t j = 0; j < i; ++j) {
        const BufferPlan& b = plan.buffers[j];
        if (b.storage != Storage::kArena || layout.hosts[j] != host || a.last < b.first || b.last < a.first) continue;
        const int64_t other = layout.offsets[j] + instance_bytes(b, {}) * b.copies;
        ASSERT_TRUE(end <= layout.offsets[j] || other <= layout.offsets[i]) << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace weft::runtime
