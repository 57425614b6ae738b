// Statistics, time lines, and what Dynamo writes of a break.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "explain/break_text.h"
#include "explain/statistics.h"
#include "explain/timeline.h"

namespace weft::explain {
namespace {

TEST(ExplainStatistics, AQuantileIsInterpolated) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_THROW(quantile({}, 0.5), Error);
  EXPECT_THROW(quantile(values, 1.5), Error);
}

TEST(ExplainStatistics, AnIntervalHoldsTheMedianAndNarrowsWithMoreValues) {
  std::vector<double> few;
  std::vector<double> many;
  for (int i = 0; i < 9; ++i) few.push_back(i % 3);
  for (int i = 0; i < 901; ++i) many.push_back(1 + 0.01 * (i % 101));
  const Interval wide = median_interval(few);
  const Interval narrow = median_interval(many);
  EXPECT_LE(wide.low, wide.median);
  EXPECT_GE(wide.high, wide.median);
  EXPECT_LT(wide.low, wide.high);
  EXPECT_NEAR(narrow.median, 1.5, 1e-9);
  EXPECT_LT(narrow.high - narrow.low, 0.1);
  EXPECT_EQ(median_interval(few).low, wide.low) << "the same values give the same interval";
}

TEST(ExplainStatistics, ASingleValueIsItsInterval) {
  const Interval interval = median_interval(std::vector<double>{7});
  EXPECT_EQ(interval.low, 7);
  EXPECT_EQ(interval.high, 7);
}

TEST(ExplainStatistics, WhatSlowsARoundDownIsNotInThePairedDifference) {
  std::vector<double> before;
  std::vector<double> after;
  for (int i = 0; i < 20; ++i) {
    const double load = i % 7;
    before.push_back(10 + load);
    after.push_back(8 + load);
  }
  const Interval gain = paired_difference(before, after);
  EXPECT_DOUBLE_EQ(gain.median, 2);
  EXPECT_DOUBLE_EQ(gain.low, 2);
  EXPECT_DOUBLE_EQ(gain.high, 2);
  after.pop_back();
  EXPECT_THROW(paired_difference(before, after), Error);
}

TEST(ExplainStatistics, RanksCorrelateWhateverTheScale) {
  const std::vector<double> xs = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(rank_correlation(xs, std::vector<double>{1, 10, 100, 1000}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(xs, std::vector<double>{4, 3, 2, -9}), -1);
  EXPECT_NEAR(rank_correlation(xs, std::vector<double>{1, 1, 2, 2}), 2 / std::sqrt(5), 1e-12) << "ties";
  EXPECT_TRUE(std::isnan(rank_correlation(xs, std::vector<double>{5, 5, 5, 5})));
}

TEST(ExplainTimeline, GapsAndGraphsMakeTheStep) {
  const std::vector<Step> steps = {{0, 10, {{0, 1, 2}, {1, 5, 6}, {0, 7, 9}}}, {20, 26, {{0, 21, 22}, {1, 23, 24}}}};
  const std::vector<Gap> found = gaps(steps);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].graph, -1);
  EXPECT_DOUBLE_EQ(found[0].seconds.median, 1);
  EXPECT_EQ(found[1].graph, 0);
  EXPECT_DOUBLE_EQ(found[1].hits, 1.5);
  EXPECT_DOUBLE_EQ(found[1].seconds.median, 2.5) << "3 and 1 in the first step, 1 in the second";
  EXPECT_EQ(found[2].graph, 1);
  EXPECT_DOUBLE_EQ(found[2].seconds.median, 1.5);
}

TEST(ExplainTimeline, AGraphInsideAnotherIsPartOfIt) {
  const std::vector<Gap> found = gaps({{0, 10, {{0, 1, 8}, {1, 2, 3}}}});
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[1].graph, 0);
  EXPECT_DOUBLE_EQ(found[1].seconds.median, 2);
}

TEST(ExplainTimeline, BetweenBackwardsTheGapIsOfTheGraphThatComesNext) {
  // Graphs 0 and 1, then their backwards in the other order.
  const std::vector<Gap> found = gaps({{0, 20, {{0, 1, 3}, {1, 4, 6}, {1, 9, 11, true}, {0, 15, 17, true}}}});
  ASSERT_EQ(found.size(), 5u);
  const std::vector<std::tuple<int, bool, double>> expected = {
      {-1, false, 1}, {0, false, 1}, {1, false, 3}, {0, true, 4}, {-1, true, 3}};
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::tuple(found[i].graph, found[i].backward, found[i].seconds.median), expected[i]) << i;
  }
}

TEST(ExplainTimeline, AStepWithoutGraphsIsOneGap) {
  const std::vector<Gap> found = gaps({{0, 3, {}}});
  ASSERT_EQ(found.size(), 1);
  EXPECT_DOUBLE_EQ(found[0].seconds.median, 3);
  EXPECT_THROW(gaps({}), Error);
  EXPECT_THROW(gaps({{0, 3, {{0, 2, 4}}}}), Error);
}

TEST(ExplainBreakText, ABreakThatDynamoResumesBehind) {
  const BreakText found = parse_break(
      "Graph break in user code at /a/b.py:30\n"
      "Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):\n\n"
      "Attempted to call function marked as skipped\n"
      "  Explanation: Dynamo does not know\n"
      "    how to trace it.\n"
      "  Hint: First.\n"
      "  Hint: Second,\n"
      "    longer.\n\n"
      "  Developer debug context: module: time\n\n"
      " For more details about this graph break, please visit: https://x.io/gb/gb0007.html\n\n"
      "User code traceback:\n"
      "  File \"/a/b.py\", line 48, in <module>\n"
      "    model(x)\n"
      "  File \"/a/b.py\", line 30, in forward\n"
      "    time.sleep(0.002)\n"
      "    ^^^^^^^^^^^^^^^^^\n\n"
      "Traceback (most recent call last):\n"
      "  File \"/torch/x.py\", line 1, in wrapper\n");
  EXPECT_EQ(found.type, "Attempted to call function marked as skipped");
  EXPECT_EQ(found.code, "GB0007");
  EXPECT_EQ(found.explanation, "Dynamo does not know how to trace it.");
  ASSERT_EQ(found.hints.size(), 2);
  EXPECT_EQ(found.hints[1], "Second, longer.");
  EXPECT_EQ(found.context, "module: time");
  EXPECT_FALSE(found.skipped);
  ASSERT_EQ(found.path.size(), 2);
  EXPECT_EQ(found.path[1].file, "/a/b.py");
  EXPECT_EQ(found.path[1].line, 30);
  EXPECT_EQ(found.path[1].function, "forward");
  EXPECT_EQ(found.path[1].code, "time.sleep(0.002)");
}

TEST(ExplainBreakText, ABreakInALoopSkipsItsFrame) {
  const BreakText found = parse_break(
      "Graph break in user code at /a/b.py:35\n"
      "Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
      "Graph break encountered:\n\n"
      "Dynamic shape operator\n  Explanation: Its shape depends on data.\n\n"
      " For more details about this graph break, please visit: https://x.io/gb/gb0036.html\n\n"
      "*** While handling this graph break, another graph break occurred: ***\n\n"
      "graph break in loop\n  Explanation: In a loop.\n\n"
      " For more details about this graph break, please visit: https://x.io/gb/gb7000.html\n\n"
      "Stack variable source attribution:\n  X originated from:\n  File \"/a/b.py\", line 34\n\n"
      "User code traceback:\n  File \"/a/b.py\", line 35, in forward\n    x = f()\n");
  EXPECT_EQ(found.type, "Dynamic shape operator");
  EXPECT_EQ(found.code, "GB0036");
  EXPECT_TRUE(found.skipped);
  EXPECT_EQ(found.skipped_by, "graph break in loop");
  ASSERT_EQ(found.path.size(), 1);
}

TEST(ExplainBreakText, WhateverTheTextSomethingComesBack) {
  EXPECT_EQ(parse_break("").type, "");
  EXPECT_EQ(parse_break("something else\nand more").type, "something else");
  EXPECT_EQ(parse_break("Graph Break Reason: ").type, "");
  EXPECT_EQ(parse_break("Graph Break Reason: Encountered graph break when attempting to trace CALL: f(x):\n\n"
                        "Could not guard on data-dependent expression\n\nFor more information, see: https://x.io\n\n"
                        "User code traceback:\n")
                .type,
            "Could not guard on data-dependent expression");
  const BreakText cut = parse_break("Graph Break Reason: no details\n\nUser code traceback:\n  File \"/a.py\", line");
  EXPECT_EQ(cut.type, "no details");
  EXPECT_TRUE(cut.path.empty());
}

}  // namespace
}  // namespace weft::explain
