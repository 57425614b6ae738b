#include "override/state.h"

#include <atomic>

#include "base/error.h"
#include "base/settings.h"
#include "engine/engine.h"
#include "operator/warnings.h"

namespace weft::override_kernels {
namespace {

std::atomic<bool> process_switch{settings().enabled};
std::atomic<bool> device_is_ours{false};
thread_local int disabled_depth = 0;

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
  engine::count_fallback(op + ": " + reason);
  torch_operator::warn_once("weft: " + op + " runs on PyTorch's own kernels: " + reason +
                            ". Counted in weft.stats(); this warning shows once for each reason.");
}

}  // namespace weft::override_kernels
