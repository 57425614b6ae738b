#include "override/state.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <set>

#include "base/error.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "operator/program_table.h"

namespace weft::override_kernels {
namespace {

std::atomic<bool> process_switch{settings().enabled};
std::atomic<bool> device_is_ours{false};
thread_local int disabled_depth = 0;

/// The warnings given. Never destroyed: calls may come while the process ends. Guarded by lookup_mutex().
auto& seen = *new std::set<std::string>;

bool first_time(const std::string& message) {
  std::lock_guard lock(torch_operator::lookup_mutex());
  return seen.insert(message).second;
}

}  // namespace

void set_enabled(bool enabled) { process_switch.store(enabled, std::memory_order_relaxed); }
bool enabled_for_process() { return process_switch.load(std::memory_order_relaxed); }
void enter_disabled() { ++disabled_depth; }
void exit_disabled() { --disabled_depth; }
bool active() { return disabled_depth == 0 && enabled_for_process(); }

void set_has_device() { device_is_ours = true; }
bool has_device() { return device_is_ours.load(std::memory_order_relaxed); }

void report_fallback(const std::string& op, const std::string& reason) {
  if (settings().strict) {
    user_error("weft: {} cannot run on Weft: {} (WEFT_STRICT=1 makes that an error; weft.disabled() allows it)", op,
               reason);
  }
  std::string message = op + ": " + reason;
  engine::count_fallback(message);
  if (!first_time(message)) return;
  TORCH_WARN("weft: ", op, " runs on PyTorch's own kernels: ", reason,
             ". Counted in weft.stats(); this warning shows once for each reason.");
}

}  // namespace weft::override_kernels
