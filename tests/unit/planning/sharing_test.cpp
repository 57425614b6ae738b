// Where threads that share columns wait for each other: no barrier too few, and none too many.

#include "planning/loops/sharing.h"

#include <algorithm>
#include <bit>
#include <random>

#include "base/settings.h"
#include "lowered.h"
#include "machine.h"
#include "programs.h"
#include "runtime/plan/stage_sizes.h"
#include "shared_steps.h"

namespace weft::planning::sharing_test {
namespace {

using Arc = std::pair<int64_t, int64_t>;

bool meets(uint64_t points, int64_t count, const Arc& arc) {
  for (int64_t i = arc.first;; i = (i + 1) % count) {
    if (points >> i & 1) return true;
    if (i == arc.second) return false;
  }
}

TEST(SharingTest, FewestPointsAreFewest) {
  std::mt19937 random(1);
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 500; ++round) {
    const int64_t count = 1 + below(9);
    std::vector<Arc> arcs;
    for (int64_t i = below(7); i > 0; --i) arcs.emplace_back(below(count), below(count));
    int64_t fewest = count;
    for (uint64_t points = 0; points < uint64_t{1} << count; ++points)
      if (std::ranges::all_of(arcs, [&](const Arc& arc) { return meets(points, count, arc); }))
        fewest = std::min<int64_t>(fewest, std::popcount(points));
    uint64_t found = 0;
    const std::vector<bool> points = fewest_points(count, arcs);
    for (int64_t i = 0; i < count; ++i) found |= uint64_t{points[static_cast<size_t>(i)]} << i;
    for (const Arc& arc : arcs) ASSERT_TRUE(meets(found, count, arc)) << round;
    ASSERT_EQ(std::popcount(found), fewest) << round;
  }
}

/// The barriers of a step of the program's one scan, `-` for a stage without.
std::string barriers(const std::string& text) {
  const testing::Lowered lowered(text);
  const Schedule& schedule = lowered.schedule;
  EXPECT_EQ(schedule.scans.size(), 1u);
  std::string marks;
  for (bool barrier : schedule.scans.begin()->second.barrier_before) marks += barrier ? '|' : '-';
  return marks;
}

std::string scan_of(const std::string& step, const std::string& ys = "", const std::string& type = "") {
  return "program @p(%x: f32[T,B,256], %h0: f32[B,256], %w: f32[256,256]) {\n"
         "  %half = constant {value = 0.5} : f32[]\n"
         "  %hT" +
         std::string(ys.empty() ? "" : ", %ys") + " = scan length T carry(%h = %h0) xs(%xt = %x) {\n" + step +
         "    yield carry(%h1) ys(" + ys + ")\n  } : f32[B,256]" + type + "\n  return %hT" +
         std::string(ys.empty() ? "" : ", %ys") + "\n}\n";
}

const char* const kElementwise =
    "    %c = broadcast %half {dims = []} : f32[B,256]\n"
    "    %hc = mul %h, %c : f32[B,256]\n"
    "    %a = add %hc, %xt : f32[B,256]\n"
    "    %h1 = tanh %a : f32[B,256]\n";

TEST(SharingTest, OwnColumnsNeedNoBarrier) { EXPECT_EQ(barriers(scan_of(kElementwise)), "-"); }

TEST(SharingTest, WhatEveryThreadComputesNeedsNone) {
  const std::string step = std::string(kElementwise) +
                           "    %ex = mul %h1, %xt : f32[B,256]\n    %y = reduce_sum %ex {dims = [1]} : f32[B]\n";
  EXPECT_EQ(barriers(scan_of(step, "%y", ", f32[T,B]")).find('|'), std::string::npos);
}

const char* const kProduct =
    "    %p = matmul %h, %w : f32[B,256]\n    %a = add %p, %xt : f32[B,256]\n    %h1 = tanh %a : f32[B,256]\n";

TEST(SharingTest, AProductOfTheCarryNeedsOne) { EXPECT_EQ(barriers(scan_of(kProduct)), "|"); }

/// The bytes of a step that members read and others wrote, and how many of two threads share the columns.
std::pair<int64_t, int64_t> crossing_and_sharers(const std::string& text, int64_t batch) {
  const testing::Lowered lowered(text);
  const runtime::Plan& plan = lowered.schedule.plan;
  const std::vector<int64_t> values = runtime::values_of(plan, {batch, 100});
  const auto scan = std::ranges::find(plan.stages, runtime::StagePlan::Kind::kScan, &runtime::StagePlan::kind);
  return {
      runtime::estimate(scan->step.crossing, values),
      runtime::stage_sizes(plan, values, runtime::packs_of_products(plan, values), 2)[static_cast<size_t>(scan->index)]
          .sharers};
}

TEST(SharingTest, OwnColumnsCrossNothing) { EXPECT_EQ(crossing_and_sharers(scan_of(kElementwise), 3).first, 0); }

TEST(SharingTest, RowsAreSharedWhereTheCarryTakesLongerToPassOn) {
  testing::on_each_machine([](const testing::Machine&) {
    EXPECT_EQ(crossing_and_sharers(scan_of(kProduct), 1), (std::pair<int64_t, int64_t>{1024, 2}));
    // By rows a thread has 4 of 7, and 104 of 207: half a row more than its share either time.
    EXPECT_EQ(crossing_and_sharers(scan_of(kProduct), 7), (std::pair<int64_t, int64_t>{7168, 2}));
    EXPECT_EQ(crossing_and_sharers(scan_of(kProduct), 207), (std::pair<int64_t, int64_t>{207 * 1024, 1}));
  });
}

int64_t sharers_of(int64_t units, int64_t batch) {
  return crossing_and_sharers(testing::replaced(scan_of(kProduct), "256", std::to_string(units)), batch).second;
}

TEST(SharingTest, RowsAreSharedWhereColumnsAreOddInNumber) {
  testing::on_each_machine([](const testing::Machine& machine) {
    if (machine.private_cache() < 512 << 10) return;  // the weights don't stay in the core's own cache
    EXPECT_EQ(sharers_of(320, 7), 2);                 // 10 vectors each, of 4 and 3 rows
    EXPECT_EQ(sharers_of(272, 7), 1);                 // 8 and 9
  });
}

TEST(SharingTest, ColumnsAreSharedWhereEachThreadWouldReadAllOfManyWeights) {
  testing::on_each_machine([](const testing::Machine& machine) {
    int64_t units = 256;
    while (units * units * 4 < 4 * machine.private_cache()) units *= 2;
    EXPECT_EQ(sharers_of(units, 12), 2);
    EXPECT_EQ(sharers_of(units, 400), 1) << "the products take longer than the weights";
  });
}

/// Whether the threads share the columns of a product of so many rows, rather than the rows.
bool shares_columns(int64_t rows, int64_t columns, int64_t threads) {
  const testing::Lowered lowered("program @p(%x: f32[B,512], %w: f32[" + std::to_string(columns) +
                                 ",512]) {\n  %y = matmul %x, %w {transpose_b = true} : f32[B," +
                                 std::to_string(columns) + "]\n  return %y\n}\n");
  const runtime::Plan& plan = lowered.schedule.plan;
  const std::vector<int64_t> values = runtime::values_of(plan, {rows});
  const auto sizes = runtime::stage_sizes(plan, values, runtime::packs_of_products(plan, values), threads);
  const auto stage = std::ranges::find(plan.stages, runtime::StagePlan::Kind::kRows, &runtime::StagePlan::kind);
  return sizes[static_cast<size_t>(stage->index)].by_columns;
}

TEST(SharingTest, ColumnsAreSharedWhereWeightsTakeLongerThanRowsThatOneThreadHasMore) {
  testing::on_each_machine([](const testing::Machine&) {
    EXPECT_FALSE(shares_columns(1, 960, 1));
    EXPECT_TRUE(shares_columns(1, 960, 2));
    EXPECT_TRUE(shares_columns(16, 960, 2));      // of weights as they lie
    EXPECT_TRUE(shares_columns(200, 960, 2));     // packed on the way
    EXPECT_FALSE(shares_columns(200, 144, 2));    // of three panels one thread would have two
    EXPECT_FALSE(shares_columns(16, 48, 2));      // one panel
    EXPECT_FALSE(shares_columns(3000, 960, 64));  // more threads than shares
  });
}

TEST(SharingTest, AProductOfAProductNeedsTwo) {
  const std::string step =
      "    %p = matmul %h, %w : f32[B,256]\n    %a = add %p, %xt : f32[B,256]\n    %g = tanh %a : f32[B,256]\n"
      "    %q = matmul %g, %w : f32[B,256]\n    %h1 = tanh %q : f32[B,256]\n";
  EXPECT_EQ(barriers(scan_of(step)), "||");
}

class LoopsAsWritten : public ::testing::Test {
 protected:
  LoopsAsWritten() { mutable_settings().disabled = testing::kTakesLoopsApart; }
  ~LoopsAsWritten() override { mutable_settings().disabled.clear(); }
};

TEST_F(LoopsAsWritten, AnOldCarryIsReadBeforeItsMemoryIsWrittenAgain) {
  EXPECT_EQ(barriers(testing::kReadsAnOldCarry), "||");
}

TEST_F(LoopsAsWritten, RowsThatEnterAreCopiedBeforeTheyAreRead) {
  EXPECT_EQ(barriers(testing::kReadsEnteredRows), "||");
  std::string text = testing::kReadsEnteredRows;
  text.replace(text.find("reverse "), 8, "");
  EXPECT_EQ(barriers(text), "-|");
}

TEST(SharingTest, BuiltInCellsNeedOne) {
  for (const char* name : {"gru", "lstm", "rnn_tanh"}) {
    std::string text = testing::program_text(name);
    for (auto [from, to] : {std::pair{"64", "512"}, {"48", "384"}, {"32", "256"}, {"16", "128"}}) {
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += 3)
        if (!std::isdigit(static_cast<unsigned char>(text[at - 1])) && text[at - 1] != 'f') text.replace(at, 2, to);
    }
    const std::string marks = barriers(text);
    EXPECT_EQ(std::ranges::count(marks, '|'), 1) << name << " " << marks;
  }
}

}  // namespace
}  // namespace weft::planning::sharing_test
