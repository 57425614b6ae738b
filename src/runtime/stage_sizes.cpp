#include "runtime/stage_sizes.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/settings.h"
#include "base/target.h"
#include "runtime/cores.h"
#include "runtime/packs.h"
#include "runtime/window.h"

namespace weft::runtime {
namespace {

constexpr double kRowsToForce = 4;  // with fewer rows than this a thread, Settings::share_all shares columns

void set_control_sizes(const Plan& plan, const ControlPlan& control, const std::vector<int64_t>& symbols,
                       StageSizes& sizes) {
  auto buffer = [&](int64_t id) -> const BufferPlan& { return plan.buffers[static_cast<size_t>(id)]; };
  for (const auto& slice : control.slices) sizes.bytes.push_back(bytes_of(buffer(slice.buffer), symbols));
  for (const auto& carry : control.carries) sizes.bytes.push_back(instance_bytes(buffer(carry.work), symbols));
  int64_t stages = 0;
  for (const auto& region : control.regions) stages += static_cast<int64_t>(region.size());
  sizes.one_member = estimate(control.work, symbols) < target::kBarrierWork * stages;
}

/// What a step of a scan costs, in multiply-adds: if the threads split the rows (where these depend on each other, one
/// thread does all), if they share the columns, and by one thread alone. `reading`: weights that stay in the core's own
/// cache from step to step take as long to read as so many rows take to compute.
struct StepCosts {
  double by_rows = 0, by_columns = 0, alone = 0;
};

StepCosts step_costs(const StagePlan& scan, const StageSizes& sizes, const std::vector<int64_t>& symbols,
                     int64_t threads, double reading) {
  const auto all = static_cast<double>(scan.splits_rows ? sizes.rows : 1), count = static_cast<double>(threads);
  if (all == 0) return {};
  const double mine = scan.splits_rows ? std::ceil(all / count) : 1;
  auto work = [&](const std::vector<DimExpr>& terms) { return static_cast<double>(estimate(terms, symbols)); };
  const double product = work(scan.step.products) / all;  // of one row
  const double split = work(scan.step.split), replicated = work(scan.step.replicated);
  // In the time of one row. Weights that don't stay there are read while rows are computed.
  auto rows_worth = [&](double rows, int64_t weight_bytes) {
    const double done = (rows + reading) / (1 + reading);
    return weight_bytes <= private_cache_bytes() / 4 * 3 ? done : std::max(done, double{target::kRowsWhileStreaming});
  };
  const int64_t weights = scan.step.weight_bytes;
  // By rows each thread packs all weights.
  const double packing = sizes.packs ? double{target::kRowsWhilePacking} : 0;
  auto by_rows = [&](double rows) {
    return product * (rows_worth(rows, weights) + packing) + (split + replicated) * rows / all;
  };
  const double by_columns = (product * (rows_worth(all, weights / threads) + packing) + split) / count + replicated +
                            double{target::kBarrierWork} * static_cast<double>(scan.step.barriers);
  return {by_rows(mine), by_columns, by_rows(all)};
}

/// How many threads should share a scan's columns: all of them if the cost model finds a step faster so than by rows,
/// else 1.
int64_t sharers_of(const StagePlan& scan, const StageSizes& sizes, const std::vector<int64_t>& symbols,
                   int64_t threads) {
  const int64_t rows = scan.splits_rows ? sizes.rows : 1;
  if (threads < 2 || scan.column_shares < threads || rows == 0) return 1;
  if (settings().share_all)
    return static_cast<double>(rows) < static_cast<double>(threads) * kRowsToForce ? threads : 1;
  // Nothing for reading: with shared columns fewer weights are read, but also what other threads have just written.
  const StepCosts costs = step_costs(scan, sizes, symbols, threads, 0);
  return costs.by_columns < costs.by_rows ? threads : 1;
}

/// Gives each of the scans that may run side by side to a member: the longest first, each to the one that has least to
/// do. Returns whether that is faster than one scan after the other, by all members.
bool share_scans(const StagePlan& first, const std::vector<int64_t>& symbols, int64_t threads,
                 std::vector<StageSizes>& all) {
  std::vector<std::pair<double, StageSizes*>> alone;
  double in_turn = 0;
  for (int64_t place : first.side_by_side.scans) {
    const StagePlan& scan = *(&first + place);
    StageSizes& sizes = all[static_cast<size_t>(scan.index)];
    const StepCosts costs = step_costs(scan, sizes, symbols, threads, target::kRowsWhileReading);
    // The rows of a ragged scan have fewer steps than it has.
    const double steps = scan.batch_sizes < 0 ? static_cast<double>(sizes.length)
                                              : static_cast<double>(sizes.packed) /
                                                    static_cast<double>(std::max<int64_t>(sizes.rows, 1));
    alone.emplace_back(costs.alone * steps, &sizes);
    in_turn += (sizes.sharers > 1 ? costs.by_columns : costs.by_rows) * steps;
  }
  std::ranges::stable_sort(alone, std::greater<>(), [](const auto& scan) { return scan.first; });
  std::vector<double> work(static_cast<size_t>(threads));
  for (const auto& [cost, sizes] : alone) {
    const auto least = std::ranges::min_element(work);
    *least += cost;
    sizes->member = least - work.begin();
  }
  return *std::ranges::max_element(work) < in_turn * target::kGainSideBySide;
}

/// Decides whether the scans that may run side by side with this one do.
void set_side_by_side(const StagePlan& first, const std::vector<int64_t>& symbols, int64_t threads,
                      std::vector<StageSizes>& all) {
  const int64_t wanted = settings().side_by_side;
  if (threads < 2 || wanted == 0) return;
  const bool is_faster = share_scans(first, symbols, threads, all);
  if (wanted < 0 && (settings().share_all || !is_faster)) return;
  all[static_cast<size_t>(first.index)].side_by_side = true;
  for (int64_t place : first.side_by_side.scans) {
    const StagePlan& scan = *(&first + place);
    StageSizes& sizes = all[static_cast<size_t>(scan.index)];
    sizes.sharers = 1;
    // What windows would compute is left to all members.
    sizes.window = 0;
    for (const auto& window : scan.windows) all[static_cast<size_t>(window.stage)].is_windowed = false;
  }
}

void set_sizes(const Plan& plan, const std::vector<StagePlan>& stages, const std::vector<int64_t>& symbols,
               const std::vector<BufferBytes>& on_the_way, int64_t threads, std::vector<StageSizes>& all) {
  auto is_packed_here = [&](int64_t pack) {
    return std::ranges::find(on_the_way, pack, &BufferBytes::buffer) != on_the_way.end();
  };
  for (const StagePlan& stage : stages) {
    StageSizes& sizes = all[static_cast<size_t>(stage.index)];
    sizes.rows = stage.rows.evaluate(symbols);
    sizes.length = stage.length.evaluate(symbols);
    sizes.packed = stage.packed.evaluate(symbols);
    sizes.work = estimate(stage.work, symbols);
    sizes.packs = std::ranges::any_of(stage.packs, is_packed_here);
    if (stage.kind == StagePlan::Kind::kScan) {
      sizes.sharers = sharers_of(stage, sizes, symbols, threads);
      sizes.window = window_steps(plan, stage, all, symbols, threads);
      for (const auto& window : stage.windows) all[static_cast<size_t>(window.stage)].is_windowed = sizes.window > 0;
    }
    if (!stage.control.regions.empty()) set_control_sizes(plan, stage.control, symbols, sizes);
    for (const auto& region : stage.control.regions) set_sizes(plan, region, symbols, on_the_way, threads, all);
  }
  for (const StagePlan& stage : stages)
    if (!stage.side_by_side.scans.empty()) set_side_by_side(stage, symbols, threads, all);
}

}  // namespace

std::vector<StageSizes> stage_sizes(const Plan& plan, const std::vector<int64_t>& symbols, int64_t threads) {
  std::vector<StageSizes> sizes(static_cast<size_t>(plan.stage_count));
  set_sizes(plan, plan.stages, symbols, packs_on_the_way(plan, symbols), threads, sizes);
  return sizes;
}

}  // namespace weft::runtime
