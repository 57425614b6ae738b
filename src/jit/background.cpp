#include "jit/background.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "runtime/threads/cores.h"

namespace weft::jit {
namespace {

struct Worker {
  std::thread thread;
  std::shared_ptr<const std::atomic<bool>> has_left;
};

/// The workers whose threads have not been joined. Never used in a child of a fork: the threads don't run there, and
/// the lock may be held for ever. Never destroyed.
struct Workers {
  std::mutex mutex;
  std::vector<Worker> all;
  bool are_ended = false;

  /// Call it under the lock.
  void join_those_who_left() {
    std::erase_if(all, [](Worker& worker) {
      const bool left = worker.has_left->load(std::memory_order_acquire);
      if (left) worker.thread.join();
      return left;
    });
  }
};

Workers& workers = *new Workers;

}  // namespace

bool in_background(std::function<void()> work) {
  if (in_forked_child()) return false;
  const std::lock_guard lock(workers.mutex);
  if (workers.are_ended) return false;
  workers.join_those_who_left();
  auto has_left = std::make_shared<std::atomic<bool>>(false);
  workers.all.reserve(workers.all.size() + 1);  // nothing may fail once the thread runs
  try {
    std::thread thread(runtime::on_another_core([has_left, work = std::move(work)]() mutable {
      work();
      work = nullptr;
      has_left->store(true, std::memory_order_release);
    }));
    workers.all.push_back({std::move(thread), std::move(has_left)});
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void end_background_work() {
  if (in_forked_child()) return;
  std::vector<Worker> begun;
  {
    const std::lock_guard lock(workers.mutex);
    workers.are_ended = true;
    begun = std::exchange(workers.all, {});
  }
  for (Worker& worker : begun) worker.thread.join();
}

}  // namespace weft::jit
