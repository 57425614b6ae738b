#include "device/devices_in_use.h"

#include <pthread.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <mutex>

#include "base/fork.h"

namespace weft::device {
namespace {

struct Devices {
  std::atomic<int> in_use{0};
  std::mutex mutex;
  Devices() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Devices& devices = *new Devices();

/// In a child of fork PyTorch makes a new engine, which asks again.
[[maybe_unused]] const int kForksUnused = pthread_atfork(nullptr, nullptr, [] { devices.in_use = 0; });

}  // namespace

int devices_in_use() { return devices.in_use.load(std::memory_order_acquire); }

void use_device() {
  if (devices_in_use() > 0) return;
  std::lock_guard lock(devices.mutex);
  if (devices_in_use() > 0) return;
  torch::autograd::Engine::get_default_engine().initialize_device_threads_pool();
  devices.in_use.store(1, std::memory_order_release);
}

}  // namespace weft::device
