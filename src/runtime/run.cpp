#include "runtime/run.h"

#include <algorithm>
#include <cstring>

#include "base/batch_sizes.h"
#include "base/error.h"
#include "runtime/share.h"

namespace weft::runtime {
namespace {

constexpr int64_t kRowsForBatchSplit = 4;  // rows a thread below which sharing the columns is faster
constexpr int64_t kSharedStage = 1 << 14;  // multiply-adds of a stage in a loop that are worth a barrier

/// Rows in multiples of `block` where there are plenty; evenly where a whole block more or less would matter.
Share rows_of(int64_t count, int64_t block, int64_t thread, int64_t threads) {
  return share_of(count, count < 4 * threads * block ? 1 : block, thread, threads);
}

int64_t bytes_of(const BufferPlan& buffer, const std::vector<int64_t>& symbols) {
  return buffer.elements.evaluate(symbols) * buffer.element_size;
}

void set_loop_sizes(const Plan& plan, const LoopPlan& loop, const std::vector<int64_t>& symbols, StageSizes& sizes) {
  auto buffer = [&](int64_t id) -> const BufferPlan& { return plan.buffers[static_cast<size_t>(id)]; };
  for (const LoopPlan::Slice& slice : loop.slices) sizes.bytes.push_back(bytes_of(buffer(slice.buffer), symbols));
  for (const LoopPlan::Carry& carry : loop.carries) sizes.bytes.push_back(instance_bytes(buffer(carry.work), symbols));
  int64_t work = 0;
  for (const DimExpr& term : loop.work) work += term.evaluate(symbols);
  sizes.one_member = work < kSharedStage * static_cast<int64_t>(loop.stages.size());
}

void set_sizes(const Plan& plan, const std::vector<StagePlan>& stages, const std::vector<int64_t>& symbols,
               std::vector<StageSizes>& all) {
  for (const StagePlan& stage : stages) {
    StageSizes& sizes = all[static_cast<size_t>(stage.index)];
    sizes.rows = stage.rows.evaluate(symbols);
    sizes.length = stage.length.evaluate(symbols);
    sizes.packed = stage.packed.evaluate(symbols);
    if (stage.kind != StagePlan::Kind::kLoop) continue;
    set_loop_sizes(plan, stage.loop, symbols, sizes);
    set_sizes(plan, stage.loop.stages, symbols, all);
  }
}

}  // namespace

std::vector<StageSizes> stage_sizes(const Plan& plan, const std::vector<int64_t>& symbols) {
  std::vector<StageSizes> sizes(static_cast<size_t>(plan.stage_count));
  set_sizes(plan, plan.stages, symbols, sizes);
  return sizes;
}

void Run::member(void** buffers, int64_t thread, int64_t threads, SpinBarrier& barrier) {
  Member member{buffers, thread, threads, threads > 1 ? &barrier : nullptr, 0};
  run_stages(plan_.stages, member);
}

void Run::rethrow() const {
  if (failed_at_ != kNever) std::rethrow_exception(failure_);
}

bool Run::run_stages(const std::vector<StagePlan>& stages, Member& member) {
  for (const StagePlan& stage : stages) {
    switch (stage.kind) {
      case StagePlan::Kind::kRows:
        run_rows(stage, member);
        break;
      case StagePlan::Kind::kScan:
        run_scan(stage, member);
        break;
      case StagePlan::Kind::kCall:
        run_call(stage, member);
        break;
      case StagePlan::Kind::kLoop:
        if (!run_loop(stage, member)) return false;
        continue;
    }
    if (!finish_stage(member)) return false;
  }
  return true;
}

bool Run::finish_stage(Member& member) {
  if (!member.barrier) return failed_at_.load(std::memory_order_relaxed) == kNever;
  member.barrier->arrive_and_wait();
  // A faster member may already have failed in the next stage: only a failure up to here ends all members alike.
  return failed_at_.load(std::memory_order_relaxed) > member.position++;
}

bool Run::run_loop(const StagePlan& stage, Member& member) {
  const StageSizes& sizes = sizes_of(stage);
  if (sizes.length > 0 && (!member.barrier || !sizes.one_member || share_all_)) return run_steps(stage, member);
  if (member.thread == 0 && sizes.length == 0) copy_carries(stage, member);
  if (member.thread == 0 && sizes.length > 0) {
    Member alone{member.buffers, 0, 1, nullptr, member.position};
    run_steps(stage, alone);
  }
  return finish_stage(member);
}

bool Run::run_steps(const StagePlan& stage, Member& member) {
  const LoopPlan& loop = stage.loop;
  const StageSizes& sizes = sizes_of(stage);
  void** buffers = member.buffers;
  for (int64_t step = 0; step < sizes.length; ++step) {
    const int64_t time = loop.reverse ? sizes.length - 1 - step : step;
    const int64_t* bytes = sizes.bytes.data();
    for (const LoopPlan::Slice& slice : loop.slices)
      buffers[slice.buffer] = static_cast<char*>(buffers[slice.stack]) + time * *bytes++;
    for (const LoopPlan::Carry& carry : loop.carries) {
      buffers[carry.arg] = step == 0 ? buffers[carry.init] : buffers[carry.out];
      char* work = static_cast<char*>(buffers[carry.work]) + (step & 1) * *bytes++;
      buffers[carry.out] = step + 1 == sizes.length ? buffers[carry.result] : work;
    }
    if (!run_stages(loop.stages, member)) return false;
  }
  return true;
}

void Run::run_rows(const StagePlan& stage, const Member& member) {
  const int64_t rows = sizes_of(stage).rows;
  if (member.threads == 1) {
    if (rows > 0) stage.function(member.buffers, dims_, nullptr, 0, rows, 0, 1);
    return;
  }
  if (stage.splits_columns && rows < member.threads * stage.row_block && stage.column_shares > 1) {
    int64_t units = std::min(member.threads, stage.column_shares);
    if (member.thread < units) stage.function(member.buffers, dims_, nullptr, 0, rows, member.thread, units);
    return;
  }
  Share range = rows_of(rows, stage.row_block, member.thread, member.threads);
  if (range.first < range.last) stage.function(member.buffers, dims_, nullptr, range.first, range.last, 0, 1);
}

void Run::run_scan(const StagePlan& stage, const Member& member) {
  if (stage.batch_sizes >= 0 && !fits(stage, member)) return;
  const StageSizes& sizes = sizes_of(stage);
  if (sizes.length == 0) {
    if (member.thread == 0) copy_carries(stage, member);
    return;
  }
  const int64_t rows = stage.splits_rows ? sizes.rows : 0;
  const int64_t threads = member.threads;
  bool by_columns = rows < threads * kRowsForBatchSplit && threads > 1 && alone_ && stage.column_shares >= threads;
  if (by_columns) return stage.function(member.buffers, dims_, member.barrier, 0, rows, member.thread, threads);
  if (!stage.splits_rows) {
    if (member.thread == 0) stage.function(member.buffers, dims_, nullptr, 0, 0, 0, 1);
    return;
  }
  Share range = stage.batch_sizes >= 0 ? share_of_steps(batch_sizes(stage, member), rows, member.thread, threads)
                                       : share_of(rows, 1, member.thread, threads);
  if (range.first < range.last) stage.function(member.buffers, dims_, nullptr, range.first, range.last, 0, 1);
}

std::span<const int64_t> Run::batch_sizes(const StagePlan& stage, const Member& member) const {
  return {static_cast<const int64_t*>(member.buffers[stage.batch_sizes]), static_cast<size_t>(sizes_of(stage).length)};
}

bool Run::fits(const StagePlan& stage, const Member& member) {
  std::string misfit = batch_sizes_misfit(batch_sizes(stage, member), sizes_of(stage).rows, sizes_of(stage).packed);
  if (!misfit.empty()) fail(member, std::make_exception_ptr(Error(misfit)));
  return misfit.empty();
}

void Run::copy_carries(const StagePlan& stage, const Member& member) {
  for (auto [from, to] : stage.carry_copies) {
    auto bytes = static_cast<size_t>(bytes_of(plan_.buffers[static_cast<size_t>(to)], symbols_));
    if (bytes > 0) std::memcpy(member.buffers[to], member.buffers[from], bytes);
  }
}

void Run::run_call(const StagePlan& stage, const Member& member) {
  std::exception_ptr failure;
  try {
    std::string error;
    if (stage.call({plan_, member.buffers, symbols_, member.thread, member.threads}, error)) return;
    failure = std::make_exception_ptr(Error(error));
  } catch (...) {
    failure = std::current_exception();
  }
  fail(member, failure);
}

void Run::fail(const Member& member, const std::exception_ptr& failure) {
  std::lock_guard lock(mutex_);
  if (failed_at_ == kNever) failure_ = failure;
  failed_at_ = std::min(failed_at_.load(), member.position);
}

}  // namespace weft::runtime
