#include "runtime/executable.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "base/fork.h"
#include "base/settings.h"
#include "base/target.h"
#include "runtime/arena.h"
#include "runtime/guarded_memory.h"
#include "runtime/packs.h"

namespace weft::runtime {
namespace {

constexpr size_t kLayoutsKept = 16;

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

/// Of each stage, as ArenaPlanner::lay_out takes them.
std::vector<int64_t> sharers(const std::vector<StageSizes>& stages) {
  std::vector<int64_t> members;
  for (const StageSizes& stage : stages) members.push_back(stage.sharers);
  return members;
}

}  // namespace

std::shared_ptr<const NativeProgram::Layout> NativeProgram::layout(LayoutKey key) const {
  std::mutex& mutex = layout_lock(*this);
  {
    const std::lock_guard lock(mutex);
    if (auto kept = kept_layout(key)) return kept;
  }
  auto fresh = make_layout(std::move(key));  // without the lock, which other programs share
  std::shared_ptr<const Layout> dropped;     // freed after the lock
  const std::lock_guard lock(mutex);
  if (auto kept = kept_layout(fresh->key)) return kept;  // made by another thread meanwhile
  if (layouts_.size() == kLayoutsKept) {
    dropped = std::move(layouts_.back());
    layouts_.pop_back();
  }
  layouts_.insert(layouts_.begin(), fresh);
  return fresh;
}

std::shared_ptr<const NativeProgram::Layout> NativeProgram::kept_layout(const LayoutKey& key) const {
  auto found = std::ranges::find_if(layouts_, [&](const auto& layout) { return layout->key == key; });
  if (found == layouts_.end()) return nullptr;
  std::rotate(layouts_.begin(), found, found + 1);
  return layouts_.front();
}

std::shared_ptr<const NativeProgram::Layout> NativeProgram::make_layout(LayoutKey key) const {
  auto fresh = std::make_shared<Layout>();
  for (const DimExpr& dim : plan_.dims) fresh->dims.push_back(dim.evaluate(key.values));
  fresh->stages = stage_sizes(plan_, key.values, key.threads);
  fresh->left_out = left_out_packs(plan_, key.values);
  fresh->on_the_way = packs_on_the_way(plan_, key.values);
  fresh->others = window_buffers(plan_, fresh->stages, key.values);
  for (int64_t buffer : fresh->left_out) fresh->others.push_back({buffer, 0});
  for (auto [buffer, bytes] : fresh->on_the_way) fresh->others.push_back({buffer, bytes * key.threads});
  const bool side_by_side = std::ranges::any_of(fresh->stages, &StageSizes::side_by_side);
  fresh->arena =
      arena_planner_.lay_out(key.values, key.uses_outputs, sharers(fresh->stages), fresh->others, side_by_side);
  fresh->key = std::move(key);
  return fresh;
}

void NativeProgram::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                        const std::vector<int64_t>& symbols, Team& team) const {
  const std::vector<int64_t> values = values_of(plan_, symbols);
  SerialTeam alone;
  Team& chosen =
      estimate(plan_.work, values) < target::kWakeWork && !settings().share_all ? static_cast<Team&>(alone) : team;
  bool aligned = std::ranges::all_of(outputs, [](void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; });
  auto layout = this->layout({values, chosen.size(), aligned, settings().share_all, settings().pack, settings().window,
                              settings().side_by_side});
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
    else if (buffer.storage == Storage::kArena)
      buffers[i] = arena.data() + layout->arena.offsets[i];
  }
  std::optional<GuardedBuffers> guarded;
  if (settings().guard) guarded.emplace(plan_, values, sharers(layout->stages), layout->others).place(buffers);
  for (int64_t buffer : layout->left_out) buffers[static_cast<size_t>(buffer)] = nullptr;
  for (auto [buffer, bytes] : layout->on_the_way)
    buffers[static_cast<size_t>(buffer)] = on_the_way(buffers[static_cast<size_t>(buffer)]);
  CallCount calls;
  Run run(plan_, code_, layout->stages, values, layout->on_the_way, layout->dims.data(), calls.others == 0,
          settings().share_all);
  run.run(chosen, buffers);
  if (guarded) guarded->check();
}

}  // namespace weft::runtime
