#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernels/packs.h"
#include "runtime/plan/plan.h"

namespace weft::runtime {

/// The sizes of a stage, and how threads share it, for given values of the symbols.
struct StageSizes {
  int64_t rows = 0, length = 0, packed = 0;
  bool one_member = false;    ///< one member runs the stages within this stage, which are too small to share
  int64_t sharers = 1;        ///< how many members share a scan's columns if they may wait for each other; 1: none
  int64_t work = 0;           ///< as StagePlan::work
  int64_t window = 0;         ///< of a scan: window_steps
  bool is_windowed = false;   ///< the stage runs within a scan, which has windows
  bool side_by_side = false;  ///< scans from this one on run at the same time (StagePlan::side_by_side), ...
  int64_t member = 0;         ///< ... each by one member: this scan by member number ...
  int64_t chunk = 0;          ///< of a scan that follows another or is followed: the number of steps in a chunk
  bool packs = false;         ///< the stage itself packs the weights of its products (packs.h)
  bool by_columns = false;    ///< of kRows with products: threads share the columns, not the rows
  /// For a loop: the bytes of one step in each slice, then of one instance of each carry's `work`.
  std::vector<int64_t> bytes;
};

/// The sizes of all stages, by StagePlan::index, for a team of `threads` threads. `packs`: chosen for these symbols.
std::vector<StageSizes> stage_sizes(const Plan& plan, const std::vector<int64_t>& symbols, const PacksOfProducts& packs,
                                    int64_t threads);

}  // namespace weft::runtime
