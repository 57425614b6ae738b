#include "base/fork.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ranges>
#include <thread>
#include <vector>

namespace weft {
namespace {

std::atomic<bool> is_child{false};

/// The registered locks by rank. The registry's own mutex ranks before them all: a library may be loaded while threads
/// run.
class Registry {
 public:
  Registry() { pthread_atfork(before, after_in_parent, after_in_child); }

  /// `inside`: for a gate's mutex, the number of threads inside the gate; else null.
  void add(std::mutex& mutex, LockRank rank, const std::atomic<int64_t>* inside) {
    const std::lock_guard lock(mutex_);
    auto later = std::ranges::upper_bound(locks_, rank, {}, &Lock::rank);
    locks_.insert(later, {rank, &mutex, inside});
  }

 private:
  struct Lock {
    LockRank rank;
    std::mutex* mutex;
    const std::atomic<int64_t>* inside;

    void take() const {
      mutex->lock();
      while (inside != nullptr && inside->load(std::memory_order_acquire) != 0)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };

  static void before();
  static void after_in_parent();
  static void after_in_child();

  void lock_all() {
    mutex_.lock();
    for (const Lock& lock : locks_) lock.take();
  }

  void unlock_all() {
    for (const Lock& lock : std::views::reverse(locks_)) lock.mutex->unlock();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<Lock> locks_;
};

/// Never destroyed: a process may fork while it ends.
Registry& registry() {
  static auto& it = *new Registry;
  return it;
}

[[maybe_unused]] const Registry& registry_made_at_load = registry();

void Registry::before() { registry().lock_all(); }

void Registry::after_in_parent() { registry().unlock_all(); }

void Registry::after_in_child() {
  is_child.store(true, std::memory_order_relaxed);
  registry().unlock_all();
}

}  // namespace

std::mutex& hold_across_fork(std::mutex& mutex, LockRank rank) {
  registry().add(mutex, rank, nullptr);
  return mutex;
}

ForkGate::ForkGate(LockRank rank) { registry().add(turn_, rank, &inside_); }

bool in_forked_child() { return is_child.load(std::memory_order_relaxed); }

}  // namespace weft
