#include <gtest/gtest.h>

#include <random>

#include "runtime/memory/arena_layout.h"

namespace weft::runtime::plan_test {
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
  const ArenaLayout layout = ArenaPlanner(plan).lay_out({}, true);
  EXPECT_EQ(layout.hosts, (std::vector<int64_t>{-1, 0, -1, -1}));
  EXPECT_EQ(layout.bytes, 5 << 20) << "what the output's stage still reads, and what finds no room";
  const ArenaLayout apart = ArenaPlanner(plan).lay_out({}, false);
  EXPECT_EQ(apart.hosts, (std::vector<int64_t>{-1, -1, -1, -1}));
  EXPECT_EQ(apart.bytes, 8 << 20);
}

/// Arena buffers that live together lie apart, in the arena or in an output that is written later.
void expect_sound(const Plan& plan, const ArenaLayout& layout, const std::vector<int64_t>& symbols,
                  const std::vector<int64_t>& members = {}) {
  auto end = [&](size_t i) {
    return layout.offsets[i] + instance_bytes(plan.buffers[i], symbols) * instances(plan.buffers[i], members);
  };
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& a = plan.buffers[i];
    if (a.storage != Storage::kArena) continue;
    const int64_t host = layout.hosts[i];
    ASSERT_GE(layout.offsets[i], 0);
    if (host < 0) {
      ASSERT_LE(end(i), layout.bytes);
    } else {
      const BufferPlan& output = plan.buffers[static_cast<size_t>(host)];
      ASSERT_EQ(output.storage, Storage::kOutput);
      ASSERT_LE(end(i), output.elements.evaluate(symbols) * output.element_size);
      ASSERT_LT(a.last, output.first);
    }
    for (size_t j = 0; j < i; ++j) {
      const BufferPlan& b = plan.buffers[j];
      if (b.storage != Storage::kArena || layout.hosts[j] != host || a.last < b.first || b.last < a.first) continue;
      ASSERT_TRUE(end(i) <= layout.offsets[j] || end(j) <= layout.offsets[i]) << i << " and " << j;
    }
  }
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
    expect_sound(plan, ArenaPlanner(plan).lay_out({}, round % 4 != 0), {});
  }
}

TEST(PlanTest, ManyBuffersOfSizesThatChangeNeverOverlap) {
  std::mt19937 random(2);
  auto up_to = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); };
  for (int round = 0; round < 5; ++round) {
    Plan plan;
    plan.symbols = {"B", "T"};
    for (int64_t i = 0; i < 400; ++i) {
      const int64_t first = up_to(99);
      const auto storage = i % 20 == 0 ? Storage::kOutput : Storage::kArena;
      plan.buffers.push_back(buffer(storage, 0, first, first + up_to(99 - first)));
      plan.buffers.back().elements = {up_to(40) * 1000, {}};
      for (int64_t symbols = up_to(2); symbols > 0; --symbols) plan.buffers.back().elements.symbols.push_back(up_to(1));
      if (storage == Storage::kArena && up_to(9) == 0) plan.buffers.back().copies_a_member = 2;
    }
    const ArenaPlanner planner(plan);
    for (const std::vector<int64_t>& symbols : std::vector<std::vector<int64_t>>{{1, 1}, {32, 8}, {3, 70}, {0, 5}}) {
      expect_sound(plan, planner.lay_out(symbols, round % 2 == 0), symbols);
      const std::vector<int64_t> members(100, 3);
      expect_sound(plan, planner.lay_out(symbols, true, members), symbols, members);
    }
  }
}

}  // namespace
}  // namespace weft::runtime::plan_test
