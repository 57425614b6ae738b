#include "runtime/plan/window.h"

#include <algorithm>

#include "base/division.h"
#include "base/settings.h"
#include "base/target.h"
#include "runtime/kernels/panels.h"
#include "runtime/plan/stage_sizes.h"
#include "runtime/threads/cores.h"

namespace weft::runtime {
namespace {

/// If a member's rows in one step take this many bytes, a prefetcher fetches little of the next member's rows.
constexpr int64_t kBytesApart = 1 << 16;

}  // namespace

int64_t step_bytes(const Plan& plan, int64_t buffer, const std::vector<int64_t>& symbols, int64_t length) {
  const BufferPlan& stack = plan.buffers[static_cast<size_t>(buffer)];
  return stack.elements.evaluate(symbols) / length * stack.element_size;
}

int64_t window_steps(const Plan& plan, const StagePlan& scan, const std::vector<StageSizes>& sizes,
                     const std::vector<int64_t>& symbols, int64_t threads) {
  const StageSizes& own = sizes[static_cast<size_t>(scan.index)];
  const int64_t wanted = settings().window;
  const bool by_columns = own.sharers > 1;
  if (scan.windows.empty() || own.length < 2 || own.rows == 0 || wanted == 0) return 0;
  if (by_columns && scan.step.barriers == 0)
    return 0;  // else its members never wait for each other, and a window
               // needs a barrier
  if (wanted > 0) return std::min(wanted, own.length);
  // Each thread runs the windows of its own rows; threads that share columns share the windows of all rows.
  const int64_t members = std::min(threads, by_columns ? own.sharers : own.rows);
  const int64_t rows = by_columns ? own.rows : own.rows / members;
  if (rows < own.rows && rows < kFewRows) return 0;  // rows of several steps don't lie side by side: no larger blocks
  int64_t bytes = 0, all_weights = 0;                // one thread's bytes of a step
  for (const StagePlan::Window& window : scan.windows) {
    for (int64_t buffer : window.buffers) bytes += step_bytes(plan, buffer, symbols, own.length) / members;
    all_weights += window.weight_bytes;
    if (sizes[static_cast<size_t>(window.stage)].packs) return 0;  // it would pack for each window
  }
  const int64_t cache = private_cache_bytes(), weights = by_columns ? all_weights / members : all_weights;
  if (bytes == 0 || bytes * own.length <= cache / 2) return 0;
  // A step that is too large for the core's own cache goes through the shared one at least, and not through memory.
  if (bytes > cache && (rows < target::kRowsOfWindow || bytes > shared_cache_bytes() / 4)) return 0;
  auto steps_of = [&](int64_t wanted_rows) { return ceil_div(wanted_rows, rows); };
  int64_t steps = std::max(cache / 4 / bytes, steps_of(target::kRowsOfWindow));
  // Weights that don't fit the cache are read again for each window. In return the stacks are not written and read.
  if (weights > cache / 2 && weights > 2 * steps * bytes) {
    const int64_t shared = shared_cache_bytes();
    const bool from_memory = all_weights > shared / 4;
    const int64_t least = from_memory ? target::kRowsOfWindow : target::kLeastRowsOfWindow;
    const int64_t room = from_memory ? shared / 2 / members : cache / 2;
    const int64_t enough = steps_of(from_memory ? target::kRowsBehindMemory : target::kRowsBehindWeights);
    steps = std::max(steps,
                     from_memory ? std::clamp(room / bytes, steps_of(target::kLeastRowsBehindMemory), enough) : enough);
    if (rows < least || steps * bytes > room) return 0;
    const bool stacks_fit = bytes * members * own.length <= shared;
    if (from_memory && (all_weights > shared / 2 || stacks_fit || steps > own.length / 2)) return 0;
  }
  return steps < own.length ? steps : 0;
}

std::vector<PlacesOfMembers> window_buffers(const Plan& plan, const std::vector<StageSizes>& sizes,
                                            const std::vector<int64_t>& symbols, int64_t threads) {
  std::vector<PlacesOfMembers> all;
  for (const StagePlan& scan : plan.stages) {
    const StageSizes& own = sizes[static_cast<size_t>(scan.index)];
    if (own.window == 0) continue;
    const int64_t members = own.sharers > 1 ? 1 : std::min(threads, own.rows);
    for (const StagePlan::Window& window : scan.windows)
      for (int64_t buffer : window.buffers) {
        const int64_t step = step_bytes(plan, buffer, symbols, own.length);
        const bool are_close = members > 1 && step / members < kBytesApart;
        all.push_back({.buffer = buffer, .bytes = padded(own.window * step), .count = are_close ? 2 : 1});
      }
  }
  return all;
}

}  // namespace weft::runtime
