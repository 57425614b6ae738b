#include "engine/engine.h"

#include <chrono>
#include <mutex>
#include <unordered_map>

#include "base/fork.h"
#include "engine/native.h"
#include "ir/parser.h"

namespace weft::engine {
namespace {

/// The state of the engine in this process. Never destroyed, since threads may still call while the process exits.
struct State {
  std::mutex& mutex = hold_across_fork(*new std::mutex, LockRank::kEngine);
  std::unordered_map<std::string, std::weak_ptr<const Executable>> executables;
  size_t live = 0;  ///< how many of these were in use at the last sweep
  Stats counted;

  /// Forgets executables that nobody holds, once their number may have doubled.
  void sweep() {
    if (executables.size() < 2 * live + 64) return;
    std::erase_if(executables, [](const auto& entry) { return entry.second.expired(); });
    live = executables.size();
  }
};

State& state = *new State;

std::shared_ptr<const Executable> build(std::string_view text) {
  auto start = std::chrono::steady_clock::now();
  NativeResult result = native(ir::parse(text));
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::lock_guard lock(state.mutex);
  ++state.counted.compiled;
  state.counted.object_cache_hits += result.from_cache;
  state.counted.instructions += result.instructions;
  state.counted.compile_seconds += seconds.count();
  return std::move(result.executable);
}

}  // namespace

std::shared_ptr<const Executable> compile(std::string_view text) {
  std::string key(text);
  {
    std::lock_guard lock(state.mutex);
    if (auto found = state.executables.find(key); found != state.executables.end())
      if (auto executable = found->second.lock()) return executable;
  }
  // Two threads may build the same program at once; the first to finish is kept.
  auto executable = build(text);
  std::lock_guard lock(state.mutex);
  state.sweep();
  auto& known = state.executables[std::move(key)];
  if (auto other = known.lock()) return other;
  known = executable;
  return executable;
}

Stats stats() {
  std::lock_guard lock(state.mutex);
  return state.counted;
}

void count_fallback(const std::string& reason) {
  std::lock_guard lock(state.mutex);
  ++state.counted.fallbacks[reason];
}

}  // namespace weft::engine
