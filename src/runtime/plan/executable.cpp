#include "runtime/plan/executable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "base/fork.h"
#include "base/settings.h"
#include "base/small_array.h"
#include "base/target.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/guarded_memory.h"
#include "runtime/threads/contention.h"

namespace weft::runtime {
namespace {

constexpr size_t kLayoutsKept = 16;

/// A call that needs at most this much memory gets it on the caller's stack, which saves the arena's locks.
constexpr int64_t kBytesOnStack = 4 << 10;

/// A plan with at most this many buffers needs no allocation for their addresses.
constexpr size_t kFewBuffers = 64;

/// The locks of programs' layouts. A fork takes them all, so there are few, chosen by a hash of the program's address.
struct alignas(64) LayoutLock {
  LayoutLock() { hold_across_fork(mutex, LockRank::kLayouts); }
  std::mutex mutex;
};
std::array<LayoutLock, 16> layout_locks;

std::mutex& layout_lock(const NativeProgram& program) {
  return layout_locks[std::hash<const void*>()(&program) / alignof(std::max_align_t) % layout_locks.size()].mutex;
}

/// The number of engine calls under way. Threads share columns only in a call that is alone: two calls whose threads
/// wait for each other inside loops would block each other's cores. In a forked child the count may stay too high,
/// which does no harm, since a child runs on one thread.
std::atomic<int64_t> calls_under_way{0};

struct CallCount {
  int64_t others = calls_under_way.fetch_add(1);
  ~CallCount() { calls_under_way.fetch_sub(1); }
};

/// By stage: the number of members that share its columns, for ArenaPlanner::lay_out.
std::vector<int64_t> sharers(const std::vector<StageSizes>& stages) {
  std::vector<int64_t> members;
  for (const StageSizes& stage : stages) members.push_back(stage.sharers);
  return members;
}

StageOrder order_of(const std::vector<StageSizes>& stages) {
  if (std::ranges::any_of(stages, &StageSizes::side_by_side)) return StageOrder::kSideBySide;
  return std::ranges::any_of(stages, &StageSizes::is_windowed) ? StageOrder::kWindows : StageOrder::kInTurn;
}

}  // namespace

bool NativeProgram::Layout::fits(const Call& call) const {
  const Settings& now = settings();
  return std::ranges::equal(symbols, call.symbols) && (is_small || threads == call.threads) &&
         uses_outputs == call.aligned && share_all == now.share_all && window == now.window &&
         side_by_side == now.side_by_side && pack == now.pack;
}

std::shared_ptr<const NativeProgram::Layout> NativeProgram::layout(const Call& call) const {
  std::mutex& mutex = layout_lock(*this);
  {
    const std::lock_guard lock(mutex);
    if (auto kept = kept_layout(call)) return kept;
  }
  auto fresh = make_layout(call);         // not under the lock, which other programs share
  std::shared_ptr<const Layout> dropped;  // freed after the lock is released
  const std::lock_guard lock(mutex);
  if (auto kept = kept_layout(call)) return kept;  // made by another thread meanwhile
  if (layouts_.size() == kLayoutsKept) {
    dropped = std::move(layouts_.back());
    layouts_.pop_back();
  }
  layouts_.insert(layouts_.begin(), fresh);
  return fresh;
}

std::shared_ptr<const NativeProgram::Layout> NativeProgram::kept_layout(const Call& call) const {
  auto found = std::ranges::find_if(layouts_, [&](const auto& layout) { return layout->fits(call); });
  if (found == layouts_.end()) return nullptr;
  std::rotate(layouts_.begin(), found, found + 1);
  return layouts_.front();
}

std::shared_ptr<const NativeProgram::Layout> NativeProgram::make_layout(const Call& call) const {
  auto fresh = std::make_shared<Layout>();
  fresh->symbols.assign(call.symbols.begin(), call.symbols.end());
  fresh->values = values_of(plan_, fresh->symbols);
  const std::vector<int64_t>& values = fresh->values;
  fresh->uses_outputs = call.aligned;
  fresh->share_all = settings().share_all;
  fresh->pack = settings().pack;
  fresh->window = settings().window;
  fresh->side_by_side = settings().side_by_side;
  const int64_t work = estimate(plan_.work, values);
  fresh->is_small = work < target::kWakeWork && !fresh->share_all;
  fresh->threads = fresh->is_small ? 1 : call.threads;
  for (const DimExpr& dim : plan_.dims) fresh->dims.push_back(dim.evaluate(values));
  fresh->packs = packs_of_products(plan_, values);
  fresh->stages = stage_sizes(plan_, values, fresh->packs, fresh->threads);
  fresh->is_short = work - work / fresh->threads < target::kSliceWork && !fresh->share_all;
  const bool shares_columns =
      std::ranges::any_of(fresh->stages, [](const StageSizes& each) { return each.sharers > 1; });
  fresh->heeds_contention = fresh->threads > 1 && (fresh->is_short || shares_columns);
  fresh->places = window_buffers(plan_, fresh->stages, values, fresh->threads);
  for (auto [buffer, bytes] : fresh->packs.on_the_way) fresh->places.push_back({buffer, bytes, fresh->threads});
  for (int64_t buffer : fresh->packs.left_out) fresh->others.push_back({buffer, 0});
  for (auto [buffer, bytes, count] : fresh->places) fresh->others.push_back({buffer, bytes * count});
  fresh->arena = arena_planner_.lay_out(values, fresh->uses_outputs, sharers(fresh->stages), fresh->others,
                                        order_of(fresh->stages));
  return fresh;
}

void NativeProgram::place(const Layout& layout, std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                          std::byte* arena, std::span<void*> buffers) const {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const BufferPlan& buffer = plan_.buffers[i];
    auto index = static_cast<size_t>(buffer.index);
    buffers[i] = nullptr;
    if (buffer.storage == Storage::kInput)
      buffers[i] = inputs[index].data;
    else if (buffer.storage == Storage::kOutput)
      buffers[i] = outputs[index].data;
    else if (int64_t host = layout.arena.hosts[i]; host >= 0)
      buffers[i] =
          static_cast<std::byte*>(outputs[static_cast<size_t>(plan_.buffers[static_cast<size_t>(host)].index)].data) +
          layout.arena.offsets[i];
    else if (buffer.storage == Storage::kArena)
      buffers[i] = arena + layout.arena.offsets[i];
  }
}

void NativeProgram::run(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                        const std::vector<int64_t>& symbols, Team& team) const {
  const bool aligned = std::ranges::all_of(
      outputs, [](const TensorRef& output) { return reinterpret_cast<uintptr_t>(output.data) % 64 == 0; });
  Call call{std::span(symbols).first(plan_.symbols.size()), team.size(), aligned};
  auto layout = this->layout(call);
  const bool contended = layout->heeds_contention && contention().is_high();
  if (contended) contention().count_call();
  if (contended && layout->is_short) {
    call.threads = 1;
    layout = this->layout(call);
  }
  SerialTeam alone;
  Team& chosen = layout->threads == 1 ? static_cast<Team&>(alone) : team;
  alignas(target::kCacheLine) std::array<std::byte, kBytesOnStack> on_stack;
  const bool needs_block = layout->arena.bytes > kBytesOnStack;
  const Arena::Block block = needs_block ? process_arena().acquire(layout->arena.bytes) : Arena::Block();
  SmallArray<void*, kFewBuffers> placed(plan_.buffers.size());
  const std::span<void*> buffers(placed.data(), placed.size());
  place(*layout, inputs, outputs, needs_block ? block.data() : on_stack.data(), buffers);
  std::optional<GuardedBuffers> guarded;
  if (settings().guard) guarded.emplace(plan_, layout->values, sharers(layout->stages), layout->others).place(buffers);
  for (int64_t buffer : layout->packs.left_out) buffers[static_cast<size_t>(buffer)] = nullptr;
  for (auto [buffer, bytes] : layout->packs.on_the_way)
    buffers[static_cast<size_t>(buffer)] = on_the_way(buffers[static_cast<size_t>(buffer)]);
  CallCount calls;
  Run run(plan_, code_, layout->stages, layout->values, layout->places, layout->dims.data(),
          calls.others == 0 && !contended, layout->share_all);
  run.run(chosen, buffers);
  if (guarded) guarded->check();
}

}  // namespace weft::runtime
