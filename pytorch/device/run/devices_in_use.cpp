#include "device/run/devices_in_use.h"

#include <pthread.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

#include "base/fork.h"

namespace weft::device {
namespace {

enum class Use {
  kNone,
  kOfParent,  ///< used by the process that forked this one: PyTorch makes a new engine here, which asks again
  kHere,
};

struct Devices {
  std::atomic<Use> use{Use::kNone};
  std::mutex mutex;
  Devices() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Devices& devices = *new Devices();

[[maybe_unused]] const int kForksAskAgain = pthread_atfork(nullptr, nullptr, [] {
  if (devices.use == Use::kHere) devices.use = Use::kOfParent;
});

}  // namespace

int devices_in_use() { return devices.use.load(std::memory_order_acquire) == Use::kHere ? 1 : 0; }

void use_device() {
  if (devices_in_use() > 0) return;
  std::lock_guard lock(devices.mutex);
  if (devices_in_use() > 0) return;
  torch::autograd::Engine::get_default_engine().initialize_device_threads_pool();
  devices.use.store(Use::kHere, std::memory_order_release);
}

bool may_be_in_a_graph() {
  if (devices.use.load(std::memory_order_acquire) == Use::kNone) return false;
  use_device();
  return true;
}

}  // namespace weft::device
