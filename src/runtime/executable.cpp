#include "runtime/executable.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>

#include "base/batch_sizes.h"
#include "base/error.h"
#include "runtime/arena.h"
#include "runtime/share.h"

namespace weft::runtime {
namespace {

constexpr size_t kLayoutsKept = 16;
constexpr int64_t kRowsForBatchSplit = 4;  // rows a thread below which sharing the columns is faster
constexpr int64_t kSerialWork = 1 << 16;   // multiply-adds that one thread does before another has woken up

/// Engine calls under way: columns are shared only by the one call that is alone (waits inside a loop would otherwise
/// stand in each other's way).
std::atomic<int64_t> calls_under_way{0};

struct CallCount {
  int64_t others = calls_under_way.fetch_add(1);
  ~CallCount() { calls_under_way.fetch_sub(1); }
};

/// Rows in multiples of `block` where there are plenty; evenly where a whole block more or less would matter.
Share rows_of(int64_t count, int64_t block, int64_t thread, int64_t threads) {
  return share_of(count, count < 4 * threads * block ? 1 : block, thread, threads);
}

/// One call of a program: what its members share.
class Run {
 public:
  Run(const Plan& plan, void* const* buffers, const std::vector<int64_t>& symbols, const int64_t* dims, bool alone)
      : plan_(plan), buffers_(buffers), symbols_(symbols), dims_(dims), alone_(alone) {}

  void member(int64_t thread, int64_t threads, SpinBarrier& barrier) {
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      run_stage(i, thread, threads, barrier);
      if (threads > 1) barrier.arrive_and_wait();
      // A faster member may already have failed in the next stage: only a failure up to here ends all members alike.
      if (failed_at_.load(std::memory_order_relaxed) <= i) return;
    }
  }

  void rethrow() const {
    if (failed_at_ != kNever) std::rethrow_exception(failure_);
  }

 private:
  static constexpr size_t kNever = ~size_t{0};

  void run_stage(size_t index, int64_t thread, int64_t threads, SpinBarrier& barrier) {
    const StagePlan& stage = plan_.stages[index];
    switch (stage.kind) {
      case StagePlan::Kind::kRows:
        return run_rows(stage, thread, threads);
      case StagePlan::Kind::kScan:
        if (stage.batch_sizes >= 0 && !fits(stage, index)) return;
        return run_scan(stage, thread, threads, barrier);
      case StagePlan::Kind::kCall:
        return run_call(index, thread, threads);
    }
  }

  void run_rows(const StagePlan& stage, int64_t thread, int64_t threads) {
    int64_t rows = stage.rows.evaluate(symbols_);
    if (stage.splits_columns && rows < threads * stage.row_block && stage.column_shares > 1) {
      int64_t units = std::min(threads, stage.column_shares);
      if (thread < units) stage.function(buffers_, dims_, nullptr, 0, rows, thread, units);
      return;
    }
    Share range = rows_of(rows, stage.row_block, thread, threads);
    if (range.first < range.last) stage.function(buffers_, dims_, nullptr, range.first, range.last, 0, 1);
  }

  void run_scan(const StagePlan& stage, int64_t thread, int64_t threads, SpinBarrier& barrier) {
    if (stage.length.evaluate(symbols_) == 0) {
      if (thread == 0) copy_carries(stage);
      return;
    }
    int64_t rows = stage.splits_rows ? stage.rows.evaluate(symbols_) : 0;
    bool by_columns = rows < threads * kRowsForBatchSplit && threads > 1 && alone_ && stage.column_shares >= threads;
    if (by_columns) return stage.function(buffers_, dims_, &barrier, 0, rows, thread, threads);
    if (!stage.splits_rows) {
      if (thread == 0) stage.function(buffers_, dims_, nullptr, 0, 0, 0, 1);
      return;
    }
    Share range = stage.batch_sizes >= 0 ? share_of_steps(batch_sizes(stage), rows, thread, threads)
                                         : share_of(rows, 1, thread, threads);
    if (range.first < range.last) stage.function(buffers_, dims_, nullptr, range.first, range.last, 0, 1);
  }

  std::span<const int64_t> batch_sizes(const StagePlan& stage) const {
    return {static_cast<const int64_t*>(buffers_[stage.batch_sizes]),
            static_cast<size_t>(stage.length.evaluate(symbols_))};
  }

  /// Whether the batch sizes of a ragged scan do. All members look at them, and so all find the same.
  bool fits(const StagePlan& stage, size_t index) {
    std::string misfit =
        batch_sizes_misfit(batch_sizes(stage), stage.rows.evaluate(symbols_), stage.packed.evaluate(symbols_));
    if (!misfit.empty()) fail(index, std::make_exception_ptr(Error(misfit)));
    return misfit.empty();
  }

  void copy_carries(const StagePlan& stage) {
    for (auto [from, to] : stage.carry_copies) {
      const BufferPlan& buffer = plan_.buffers[static_cast<size_t>(to)];
      auto bytes = static_cast<size_t>(buffer.elements.evaluate(symbols_) * buffer.element_size);
      if (bytes > 0) std::memcpy(buffers_[to], buffers_[from], bytes);
    }
  }

  void run_call(size_t index, int64_t thread, int64_t threads) {
    std::exception_ptr failure;
    try {
      std::string error;
      if (plan_.stages[index].call({plan_, buffers_, symbols_, thread, threads}, error)) return;
      failure = std::make_exception_ptr(Error(error));
    } catch (...) {
      failure = std::current_exception();
    }
    fail(index, failure);
  }

  void fail(size_t index, const std::exception_ptr& failure) {
    std::lock_guard lock(mutex_);
    if (failed_at_ == kNever) failure_ = failure;
    failed_at_ = std::min(failed_at_.load(), index);
  }

  const Plan& plan_;
  void* const* buffers_;
  const std::vector<int64_t>& symbols_;
  const int64_t* dims_;
  bool alone_;
  std::mutex mutex_;
  std::atomic<size_t> failed_at_{kNever};  // the stage
  std::exception_ptr failure_;
};

}  // namespace

std::shared_ptr<const NativeProgram::Layout> NativeProgram::layout(const std::vector<int64_t>& symbols,
                                                                   bool uses_outputs) const {
  std::lock_guard lock(mutex_);
  auto found = std::ranges::find_if(
      layouts_, [&](const auto& layout) { return layout->symbols == symbols && layout->uses_outputs == uses_outputs; });
  if (found != layouts_.end()) {
    std::rotate(layouts_.begin(), found, found + 1);
    return layouts_.front();
  }
  auto fresh = std::make_shared<Layout>();
  fresh->symbols = symbols;
  for (const DimExpr& dim : plan_.dims) fresh->dims.push_back(dim.evaluate(symbols));
  fresh->uses_outputs = uses_outputs;
  fresh->arena = lay_out(plan_, symbols, uses_outputs);
  layouts_.insert(layouts_.begin(), fresh);
  if (layouts_.size() > kLayoutsKept) layouts_.pop_back();
  return fresh;
}

void NativeProgram::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                        const std::vector<int64_t>& symbols, Team& team) const {
  bool aligned = std::ranges::all_of(outputs, [](void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; });
  auto layout = this->layout(symbols, aligned);
  Arena::Block arena = process_arena().acquire(layout->arena.bytes);
  std::vector<void*> buffers(plan_.buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BufferPlan& buffer = plan_.buffers[i];
    auto index = static_cast<size_t>(buffer.index);
    if (buffer.storage == Storage::kInput)
      buffers[i] = const_cast<void*>(inputs[index]);
    else if (buffer.storage == Storage::kOutput)
      buffers[i] = outputs[index];
    else if (int64_t host = layout->arena.hosts[i]; host >= 0)
      buffers[i] =
          static_cast<std::byte*>(outputs[static_cast<size_t>(plan_.buffers[static_cast<size_t>(host)].index)]) +
          layout->arena.offsets[i];
    else
      buffers[i] = arena.data() + layout->arena.offsets[i];
  }
  CallCount calls;
  Run run(plan_, buffers.data(), symbols, layout->dims.data(), calls.others == 0);
  int64_t work = 0;
  for (const DimExpr& term : plan_.work) work += term.evaluate(symbols);
  SerialTeam alone;
  Team& chosen = work < kSerialWork ? static_cast<Team&>(alone) : team;
  std::mutex barrier_mutex;
  std::unique_ptr<SpinBarrier> owner;
  chosen.run([&](int64_t thread, int64_t threads) {
    {
      std::lock_guard lock(barrier_mutex);
      if (!owner) owner = std::make_unique<SpinBarrier>(threads);
    }
    run.member(thread, threads, *owner);
  });
  run.rethrow();
}

}  // namespace weft::runtime
