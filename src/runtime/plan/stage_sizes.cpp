#include "runtime/plan/stage_sizes.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/division.h"
#include "base/settings.h"
#include "base/target.h"
#include "runtime/kernels/kernels.h"
#include "runtime/plan/window.h"
#include "runtime/threads/cores.h"
#include "runtime/threads/share.h"

namespace weft::runtime {
namespace {

constexpr double kRowsToForce = 4;  // with fewer rows for each thread, Settings::share_all makes them share columns

void set_control_sizes(const Plan& plan, const ControlPlan& control, const std::vector<int64_t>& symbols,
                       StageSizes& sizes) {
  auto buffer = [&](int64_t id) -> const BufferPlan& { return plan.buffers[static_cast<size_t>(id)]; };
  for (const auto& slice : control.slices) sizes.bytes.push_back(bytes_of(buffer(slice.buffer), symbols));
  for (const auto& carry : control.carries) sizes.bytes.push_back(instance_bytes(buffer(carry.work), symbols));
  int64_t stages = 0;
  for (const auto& region : control.regions) stages += static_cast<int64_t>(region.size());
  sizes.one_member = estimate(control.work, symbols) < target::kBarrierWork * stages;
}

/// The largest part of a step's shared columns that a member has.
double largest_part(const StepWork& step, int64_t threads) {
  if (step.units == 0) return 1 / static_cast<double>(threads);
  int64_t most = 0;
  for (int64_t thread = 0; thread < threads; ++thread) {
    const Share share = share_of(step.units, step.grain, thread, threads);
    most = std::max(most, share.last - share.first);
  }
  return static_cast<double>(most) / static_cast<double>(step.units);
}

/// The cost of a step of a scan in multiply-adds: if the threads split the rows (one thread does all where the rows
/// depend on each other), if they share the columns, and by one thread alone. `reading`: how many rows take as long to
/// compute as it takes to read the weights, if these stay in the core's own cache from step to step.
struct StepCosts {
  double by_rows = 0, by_columns = 0, alone = 0;
};

StepCosts step_costs(const StagePlan& scan, const StageSizes& sizes, const std::vector<int64_t>& symbols,
                     int64_t threads, double reading) {
  const auto all = static_cast<double>(scan.splits_rows ? sizes.rows : 1), count = static_cast<double>(threads);
  if (all == 0) return {};
  const double mine = scan.splits_rows ? std::ceil(all / count) : 1;
  auto work = [&](const std::vector<DimExpr>& terms) { return static_cast<double>(estimate(terms, symbols)); };
  const double product = work(scan.step.products) / all;  // the cost of one row
  const double split = work(scan.step.split), replicated = work(scan.step.replicated);
  const auto streaming = static_cast<double>(rows_while_streaming(active_isa()));
  // The time of `rows` rows, in units of one row's time. Weights that don't stay in the cache arrive while rows are
  // computed. The two together take the longer of their times, plus a part of the shorter one, which is larger the
  // closer the times are. Weights a little larger than the cache do stay in part.
  const double cache = static_cast<double>(private_cache_bytes()) * 3 / 4;
  auto rows_worth = [&](double rows, int64_t weight_bytes) {
    const double done = (rows + reading) / (1 + reading), bytes = static_cast<double>(weight_bytes);
    const double arriving = bytes <= cache ? 0 : streaming * std::min(1.0, 2 * (1 - cache / bytes));
    return std::cbrt(done * done * done + arriving * arriving * arriving);
  };
  const int64_t weights = scan.step.weight_bytes;
  // If the threads split the rows, each packs all weights.
  const double packing = sizes.packs ? double{target::kRowsWhilePacking} : 0;
  auto by_rows = [&](double rows) {
    return product * (rows_worth(rows, weights) + packing) + (split + replicated) * rows / all;
  };
  // Each member wrote its own share of the values that all members read.
  const double exchange = work(scan.step.crossing) * (1 - 1 / count) * double{target::kWorkPerCrossingByte};
  const double part = largest_part(scan.step, threads);
  const double by_columns = (product * (rows_worth(all, weights / threads) + packing) + split) * part + replicated +
                            double{target::kBarrierWork} * static_cast<double>(scan.step.barriers) + exchange;
  return {by_rows(mine), by_columns, by_rows(all)};
}

/// How many threads should share a scan's columns: all threads if the cost model says that a step is then faster than
/// with the rows split among them, else 1.
int64_t sharers_of(const StagePlan& scan, const StageSizes& sizes, const std::vector<int64_t>& symbols,
                   int64_t threads) {
  const int64_t rows = scan.splits_rows ? sizes.rows : 1;
  if (threads < 2 || scan.column_shares < threads || rows == 0) return 1;
  if (settings().share_all)
    return static_cast<double>(rows) < static_cast<double>(threads) * kRowsToForce ? threads : 1;
  // `reading` is 0: with shared columns a thread reads fewer weights, but also what other threads have just written.
  const StepCosts costs = step_costs(scan, sizes, symbols, threads, 0);
  return costs.by_columns < costs.by_rows ? threads : 1;
}

/// Whether the threads should split a stage's products by columns, not by rows. Each thread then reads, or packs, only
/// its part of the weights; with few rows that takes longer than the products. If the weights were packed by a stage of
/// their own, threads split the rows, as the next stage does. (Xeon with AVX-512, two threads: 16 rows by 2048 rows of
/// 512 0.24 ms by rows, 0.18 by columns; packed on the way 128 rows by 4096 rows of 1024 5.6 and 5.1, 2048 rows by 512
/// rows of 128 1.12 and 1.17, of whose eleven panels one thread had six.)
bool should_share_columns(const StagePlan& stage, const StageSizes& sizes, bool leaves_out, int64_t threads) {
  if (threads < 2 || stage.column_shares < 2) return false;
  if (sizes.rows < threads * stage.row_block) return true;
  if (!sizes.packs && !leaves_out) return false;
  if (stage.column_shares < threads) return false;
  const double first = sizes.packs ? double{target::kRowsWhilePacking} : target::kRowsWhileReading;
  const double largest = static_cast<double>(ceil_div(stage.column_shares, threads)) /
                         static_cast<double>(stage.column_shares);  // part of the columns
  return (first + static_cast<double>(sizes.rows)) * largest <
         first + static_cast<double>(ceil_div(sizes.rows, threads));
}

/// Scans that may run side by side; decides whether they do.
struct Group {
  const StagePlan& first;
  const std::vector<int64_t>& symbols;
  int64_t threads;
  std::vector<StageSizes>& all;

  size_t count() const { return first.side_by_side.scans.size(); }
  const StagePlan& scan(size_t i) const { return *(&first + first.side_by_side.scans[i]); }
  StageSizes& sizes(size_t i) const { return all[static_cast<size_t>(scan(i).index)]; }
  /// The work of the stages in a scan's windows, in multiply-adds.
  double windowed(size_t i) const {
    double work = 0;
    for (const auto& window : scan(i).windows) work += static_cast<double>(all[static_cast<size_t>(window.stage)].work);
    return work;
  }
  bool has_followers() const { return !first.side_by_side.follows.empty(); }
  bool follows(size_t i) const {
    return std::ranges::any_of(first.side_by_side.follows,
                               [&](const auto& each) { return each.scan == static_cast<int64_t>(i); });
  }
  bool is_followed(size_t i) const {
    return std::ranges::any_of(first.side_by_side.follows,
                               [&](const auto& each) { return each.leader == static_cast<int64_t>(i); });
  }
};

/// The costs of a scan of the group: by one member, and by all members when the scans run one after the other. They
/// include the windowed stages of a scan that follows another.
struct ScanCosts {
  double alone = 0, in_turn = 0;
};

ScanCosts costs_of(const Group& group, size_t i, int64_t chunk) {
  const StagePlan& scan = group.scan(i);
  const StageSizes& sizes = group.sizes(i);
  const StepCosts costs = step_costs(scan, sizes, group.symbols, group.threads, target::kRowsWhileReading);
  // A row of a ragged scan has fewer steps than the scan: the mean is taken here.
  const double steps = scan.batch_sizes < 0
                           ? static_cast<double>(sizes.length)
                           : static_cast<double>(sizes.packed) / static_cast<double>(std::max<int64_t>(sizes.rows, 1));
  ScanCosts all{costs.alone * steps, (sizes.sharers > 1 ? costs.by_columns : costs.by_rows) * steps};
  if (!group.follows(i)) return all;
  // A chunk reads the weights once.
  const double rows = static_cast<double>(chunk * std::max<int64_t>(sizes.rows, 1));
  all.alone += group.windowed(i) * (1 + target::kRowsWhileReading / rows);
  all.in_turn += group.windowed(i) / static_cast<double>(group.threads);
  return all;
}

/// How many steps a scan does before its followers may do the same steps: enough rows for products to read their
/// weights once a chunk. 0 if no scan follows another, or none can.
int64_t chunk_steps(const Group& group) {
  constexpr int64_t kLeastSteps = 4;  // about 1 us, compared with the time of a signal to another core
  int64_t rows = 1, length = 0;
  for (size_t i = 0; i < group.count(); ++i) {
    if (!group.follows(i) && !group.is_followed(i)) continue;
    const StageSizes& sizes = group.sizes(i);
    if (group.scan(i).splits_rows && sizes.rows == 0) return 0;
    rows = std::max(rows, sizes.rows);
    length = std::max(length, sizes.length);
  }
  if (length < 2) return 0;
  if (const int64_t wanted = settings().window; wanted >= 0) return wanted;
  return std::max(ceil_div(target::kRowsOfWindow, rows), kLeastSteps);
}

/// Gives each scan of the group to a member. Returns whether that is faster than one scan after the other, by all
/// members. Independent scans go longest first, each to the member that has least to do. Scans that follow others go in
/// their order, each to the member that is free first: a follower ends at least a chunk after the scans that it
/// follows.
bool share_scans(const Group& group, int64_t chunk) {
  std::vector<ScanCosts> costs;
  std::vector<size_t> order;
  double in_turn = 0;
  for (size_t i = 0; i < group.count(); ++i) {
    costs.push_back(costs_of(group, i, chunk));
    in_turn += costs.back().in_turn;
    order.push_back(i);
  }
  if (!group.has_followers())
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return costs[i].alone; });
  std::vector<double> busy(static_cast<size_t>(group.threads)), ends(group.count());
  for (size_t i : order) {
    const auto least = std::ranges::min_element(busy);
    const double steps = static_cast<double>(std::max<int64_t>(group.sizes(i).length, 1));
    const double of_chunk = costs[i].alone * std::min(static_cast<double>(chunk) / steps, 1.0);
    ends[i] = *least + costs[i].alone;
    for (const StagePlan::Follows& follows : group.first.side_by_side.follows)
      if (follows.scan == static_cast<int64_t>(i))
        ends[i] = std::max(ends[i], ends[static_cast<size_t>(follows.leader)] + of_chunk);
    *least = ends[i];
    group.sizes(i).member = least - busy.begin();
  }
  return *std::ranges::max_element(busy) < in_turn * target::kGainSideBySide;
}

/// Decides whether the scans that may run side by side do.
void set_side_by_side(const Group& group) {
  const int64_t wanted = settings().side_by_side;
  if (group.threads < 2 || wanted == 0) return;
  const int64_t chunk = chunk_steps(group);
  if (group.has_followers() && chunk == 0) return;
  const bool is_faster = share_scans(group, chunk);
  if (wanted < 0 && (settings().share_all || !is_faster)) return;
  group.all[static_cast<size_t>(group.first.index)].side_by_side = true;
  for (size_t i = 0; i < group.count(); ++i) {
    StageSizes& sizes = group.sizes(i);
    const bool follows = group.follows(i);
    sizes.sharers = 1;
    sizes.chunk = follows || group.is_followed(i) ? chunk : 0;
    // Stages that could run in windows run before the scans, by all members, where that is possible.
    sizes.window = follows && !group.scan(i).windows.empty() ? chunk : 0;
    for (const auto& window : group.scan(i).windows)
      group.all[static_cast<size_t>(window.stage)].is_windowed = sizes.window > 0;
  }
}

void set_sizes(const Plan& plan, const std::vector<StagePlan>& stages, const std::vector<int64_t>& symbols,
               const PacksOfProducts& packs, int64_t threads, std::vector<StageSizes>& all) {
  auto is_packed_here = [&](int64_t pack) {
    return std::ranges::find(packs.on_the_way, pack, &BufferBytes::buffer) != packs.on_the_way.end();
  };
  auto is_left_out = [&](int64_t pack) { return std::ranges::find(packs.left_out, pack) != packs.left_out.end(); };
  for (const StagePlan& stage : stages) {
    StageSizes& sizes = all[static_cast<size_t>(stage.index)];
    sizes.rows = stage.rows.evaluate(symbols);
    sizes.length = stage.length.evaluate(symbols);
    sizes.packed = stage.packed.evaluate(symbols);
    sizes.work = estimate(stage.work, symbols);
    sizes.packs = std::ranges::any_of(stage.packs, is_packed_here);
    if (stage.kind == StagePlan::Kind::kRows)
      sizes.by_columns = should_share_columns(stage, sizes, std::ranges::any_of(stage.packs, is_left_out), threads);
    if (stage.kind == StagePlan::Kind::kScan) {
      sizes.sharers = sharers_of(stage, sizes, symbols, threads);
      sizes.window = window_steps(plan, stage, all, symbols, threads);
      for (const auto& window : stage.windows) all[static_cast<size_t>(window.stage)].is_windowed = sizes.window > 0;
    }
    if (!stage.control.regions.empty()) set_control_sizes(plan, stage.control, symbols, sizes);
    for (const auto& region : stage.control.regions) set_sizes(plan, region, symbols, packs, threads, all);
  }
  for (const StagePlan& stage : stages)
    if (!stage.side_by_side.scans.empty()) set_side_by_side({stage, symbols, threads, all});
}

}  // namespace

std::vector<StageSizes> stage_sizes(const Plan& plan, const std::vector<int64_t>& symbols, const PacksOfProducts& packs,
                                    int64_t threads) {
  std::vector<StageSizes> sizes(static_cast<size_t>(plan.stage_count));
  set_sizes(plan, plan.stages, symbols, packs, threads, sizes);
  return sizes;
}

}  // namespace weft::runtime
