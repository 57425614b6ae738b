#include "device/autograd_thread.h"

#include <pthread.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/fork.h"

namespace weft::device {
namespace {

using torch::autograd::Engine;
using torch::autograd::ReadyQueue;

struct State {
  std::atomic<bool> is_served{false};
  std::atomic<int> devices{0};
  std::mutex mutex;
  State() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
State& state = *new State();

/// In a child of fork PyTorch makes a new engine, and the thread is gone.
[[maybe_unused]] const int kRegistered = pthread_atfork(nullptr, nullptr, [] { state.is_served = false; });

/// What the engine's own start_device_threads does, after it has run and found no device.
struct Access : Engine {
  static void add_device(Engine& engine) {
    auto& queues = engine.*(&Access::device_ready_queues_);
    if (!queues.empty()) return;  // of an accelerator
    queues.push_back(std::make_shared<ReadyQueue>());
    std::thread(&Engine::thread_init, &engine, 0, queues[0], true).detach();
  }
};

}  // namespace

int devices_in_use() { return state.devices.load(std::memory_order_relaxed); }

void serve_autograd() {
  if (state.is_served.load(std::memory_order_acquire)) return;
  std::lock_guard lock(state.mutex);
  if (state.is_served.load(std::memory_order_relaxed)) return;
  Engine& engine = Engine::get_default_engine();
  state.devices = 0;
  engine.initialize_device_threads_pool();
  state.devices = 1;
  Access::add_device(engine);
  state.is_served.store(true, std::memory_order_release);
}

}  // namespace weft::device
