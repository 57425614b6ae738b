// The loop over panels of weights, with functions that count: every row of every panel once, whatever the split.

#include "runtime/kernels/panels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace weft::runtime::panels_test {
namespace {

/// What the functions of a stage have been called with.
struct Seen {
  std::map<std::pair<int64_t, int64_t>, int> epilogues;  // the number of calls, by panel and row
  std::vector<int64_t> panels;                           // the first panel of each call, in the order of the calls
  int64_t most_rows = 0, most_panels = 0;
};

int64_t multiplied_rows = 0, multiplied_panel = -1;
const void* multiplied_left = nullptr;

void multiply(int64_t rows, const void* a, int64_t, const void*, const void*, int64_t first, int64_t, void*,
              const ProductLayout*, const void*, int64_t) {
  multiplied_rows = rows;
  multiplied_panel = first;
  multiplied_left = a;
}

void follow(void* closure, int64_t panel, int64_t panels, int64_t row, int64_t rows) {
  auto& seen = *static_cast<Seen*>(closure);
  EXPECT_EQ(multiplied_rows, rows);
  EXPECT_EQ(multiplied_panel, panel);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(multiplied_left) % 4096, static_cast<uintptr_t>(row) * 12);
  for (int64_t p = panel; p < panel + panels; ++p)
    for (int64_t r = row; r < row + rows; ++r) ++seen.epilogues[{p, r}];
  seen.panels.push_back(panel);
  seen.most_rows = std::max(seen.most_rows, rows);
  seen.most_panels = std::max(seen.most_panels, panels);
}

alignas(4096) char left_rows[4096];

constexpr int64_t kTileRows = 6;  // of the stages here

int64_t most_rows_of_a_block(int64_t rows) { return rows <= kRowsOfOneBlock ? rows : kTileRows; }

/// Rows first..last-1 in each of some steps.
struct Steps {
  int64_t count = 1, apart = 0;
};

/// Runs rows first..last-1 by `members` members, one after the other.
Seen run(const PanelStage& stage, int64_t first, int64_t last, int64_t members, bool backwards, Steps steps = {}) {
  Seen seen;
  for (int64_t unit = 0; unit < members; ++unit) {
    PanelOperands operands{left_rows + first * 12, 3, left_rows, nullptr, nullptr, nullptr};
    const PanelFunctions functions{follow, &seen, nullptr, nullptr};
    weft_panels(&stage, &operands, &functions, first, last, steps.count, steps.apart, unit, members, backwards ? 1 : 0);
  }
  return seen;
}

TEST(Panels, CoverEveryRowOfEveryPanelOnce) {
  for (int64_t units : {1, 7, 16})
    for (int64_t unroll : {1, 3})
      for (int64_t chunk : {0, 12})
        for (int64_t rows : {0, 1, 3, 6, 7, 8, 9, 40})
          for (int64_t members : {1, 2, 5})
            for (bool backwards : {false, true}) {
              const PanelProduct product{{3, units * 16, 1, unroll, 3, 0}, 4, 192, multiply, nullptr, 0, nullptr, 0};
              const int64_t panels = (units + unroll - 1) / unroll;
              const PanelStage stage{kTileRows, chunk, units, panels,  unroll, std::max<int64_t>(2, unroll),
                                     1,         0,     1,     &product};
              const Seen seen = run(stage, 5, 5 + rows, members, backwards);
              EXPECT_LE(seen.most_rows, most_rows_of_a_block(rows));
              ASSERT_EQ(std::ssize(seen.epilogues), rows * panels);
              for (const auto& [place, times] : seen.epilogues) {
                EXPECT_EQ(times, 1);
                EXPECT_TRUE(place.first >= 0 && place.first < panels && place.second >= 5 && place.second < 5 + rows);
              }
            }
}

TEST(Panels, CoverTheRowsOfEveryStepOnce) {
  for (int64_t chunk : {0, 12})
    for (int64_t rows : {0, 1, 3, 8, 9, 20})
      for (int64_t steps : {0, 1, 2, 7})
        for (bool backwards : {false, true}) {
          const PanelProduct product{{3, 112, 1, 3, 3, 0}, 4, 192, multiply, nullptr, 0, nullptr, 0};
          const PanelStage stage{kTileRows, chunk, 7, 3, 3, 3, 1, 0, 1, &product};
          const Seen seen = run(stage, 5, 5 + rows, 1, backwards, {steps, 40});
          EXPECT_LE(seen.most_rows, std::min(rows, kRowsOfOneBlock));  // 20 may be chunks of 12 and 8
          ASSERT_EQ(std::ssize(seen.epilogues), rows * steps * 3);
          for (const auto& [place, times] : seen.epilogues) {
            EXPECT_EQ(times, 1);
            EXPECT_TRUE(place.second % 40 >= 5 && place.second % 40 < 5 + rows && place.second / 40 < steps);
          }
        }
}

TEST(Panels, MultiplyTheRowsOfAllStepsByAPanelBeforeTheNext) {
  const PanelProduct product{{3, 64, 1, 1, 3, 0}, 4, 192, multiply, nullptr, 0, nullptr, 0};
  const PanelStage stage{kTileRows, 18, 4, 2, 2, 2, 0, 0, 1, &product};
  const std::vector<int64_t> of_chunk{0, 0, 0, 0, 1, 1, 1, 1};  // two steps of two blocks
  std::vector<int64_t> of_all = of_chunk;
  of_all.insert(of_all.end(), of_chunk.begin(), of_chunk.end());
  EXPECT_EQ(run(stage, 0, 9, 1, false, {4, 16}).panels, of_all);
}

TEST(Panels, OfWeightsThatAreReadByColumnsAsManyAsTilesHoldAreTakenAtOnce) {
  const PanelProduct product{{3, 640, 1, 1, 640, 0}, 4, 192, multiply, nullptr, 0, nullptr, 0};
  const PanelStage stage{kTileRows, 12, 40, 40, 1, 2, 1, 0, 1, &product};
  for (int64_t rows : {1, 2, 5, 30, 48, 49, 130})
    for (bool backwards : {false, true}) {
      Seen seen;
      PanelOperands operands{left_rows, 3, nullptr, left_rows, nullptr, nullptr};
      const PanelFunctions functions{follow, &seen, nullptr, nullptr};
      weft_panels(&stage, &operands, &functions, 0, rows, 1, 0, 0, 1, backwards ? 1 : 0);
      EXPECT_LE(seen.most_rows, kRowsOfPlain);
      EXPECT_LE(seen.most_rows * seen.most_panels, kRowsOfTiles);
      EXPECT_LE(seen.most_panels, kMostColumnPanels);
      ASSERT_EQ(std::ssize(seen.epilogues), rows * 40);
      for (const auto& [place, times] : seen.epilogues) EXPECT_EQ(times, 1);
    }
}

TEST(Panels, OfWeightsThatAreReadAlongTheirRowsMeetAllRowsBeforeTheNext) {
  const PanelProduct product{{3, 640, 1, 1, 3, 1}, 4, 192, multiply, nullptr, 0, nullptr, 0};
  const PanelStage stage{kTileRows, 0, 40, 40, 1, 2, 1, 0, 1, &product};
  for (int64_t rows : {1, 5, 8, 30, 48, 49, 130}) {
    Seen seen;
    PanelOperands operands{left_rows, 3, nullptr, left_rows, nullptr, nullptr};
    const PanelFunctions functions{follow, &seen, nullptr, nullptr};
    weft_panels(&stage, &operands, &functions, 0, rows, 1, 0, 0, 1, 0);
    const int64_t blocks = (rows + kRowsOfPlain - 1) / kRowsOfPlain;
    EXPECT_EQ(seen.most_rows, (rows + blocks - 1) / blocks);
    EXPECT_LE(seen.most_rows * seen.most_panels, kRowsOfTiles);
    ASSERT_EQ(std::ssize(seen.epilogues), rows * 40);
    for (const auto& [place, times] : seen.epilogues) EXPECT_EQ(times, 1);
  }
}

TEST(Panels, GoBackwards) {
  const PanelProduct product{{3, 64, 1, 1, 3, 0}, 4, 192, multiply, nullptr, 0, nullptr, 0};
  const PanelStage stage{kTileRows, 0, 4, 4, 1, 2, 0, 0, 1, &product};
  EXPECT_EQ(run(stage, 0, 4, 1, false).panels, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(run(stage, 0, 4, 1, true).panels, (std::vector<int64_t>{3, 2, 1, 0}));
  EXPECT_EQ(run(stage, 0, 3, 1, false).panels, (std::vector<int64_t>{0}));  // few rows: four panels at once
}

}  // namespace
}  // namespace weft::runtime::panels_test
