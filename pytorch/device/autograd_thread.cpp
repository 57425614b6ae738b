#include "device/autograd_thread.h"

#include <pthread.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "base/fork.h"

namespace weft::device {
namespace {

using torch::autograd::Engine;
using torch::autograd::ReadyQueue;

struct Service {
  std::atomic<bool> is_served{false};
  std::atomic<int> devices{0};
  std::mutex mutex;
  Service() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Service& service = *new Service();

/// In a child of fork PyTorch makes a new engine, and the thread is gone.
[[maybe_unused]] const int kForksUnserved = pthread_atfork(nullptr, nullptr, [] { service.is_served = false; });

/// What the engine's own start_device_threads does, after it has run and found no device.
struct Access : Engine {
  static void add_device(Engine& engine) {
    auto& queues = engine.*(&Access::device_ready_queues_);
    if (!queues.empty()) return;  // of an accelerator
    queues.push_back(std::make_shared<ReadyQueue>());
    std::thread(&Engine::thread_init, &engine, 0, queues[0], true).detach();
  }
};

/// A backward of nothing, on the device and without Python's objects. The engine's thread comes to it when it has
/// dropped what came before.
void pass_through() {
  const at::AutoGradMode grad(true);
  const auto x = torch::empty({}, at::TensorOptions().device(c10::kPrivateUse1).requires_grad(true));
  torch::autograd::grad({x.neg()}, {x}, {torch::empty_like(x, at::TensorOptions().requires_grad(false))});
}

}  // namespace

int devices_in_use() { return service.devices.load(std::memory_order_relaxed); }

void serve_autograd() {
  if (service.is_served.load(std::memory_order_acquire)) return;
  std::lock_guard lock(service.mutex);
  if (service.is_served.load(std::memory_order_relaxed)) return;
  Engine& engine = Engine::get_default_engine();
  service.devices = 0;
  engine.initialize_device_threads_pool();
  service.devices = 1;
  Access::add_device(engine);
  service.is_served.store(true, std::memory_order_release);
}

void wait_for_autograd() {
  if (!service.is_served.load(std::memory_order_acquire)) return;
  const auto passed = std::make_shared<std::promise<void>>();
  const std::future<void> is_idle = passed->get_future();
  std::thread([passed] {
    try {
      pass_through();
    } catch (const std::exception&) {  // of a device that can't be used any more
    }
    passed->set_value();
  }).detach();
  is_idle.wait_for(std::chrono::seconds(10));
}

}  // namespace weft::device
