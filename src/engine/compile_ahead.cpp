#include "engine/compile_ahead.h"

#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "engine/native.h"
#include "runtime/threads/cores.h"

namespace weft::engine {
namespace {

struct Worker {
  std::thread thread;
  std::shared_ptr<const std::atomic<bool>> has_left;
};

/// The workers whose threads have not been joined. A child of a fork doesn't use it: there the threads are gone, and
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

std::shared_ptr<CompilationAhead> CompilationAhead::begin(ir::Program program) {
  if (in_forked_child()) return nullptr;
  const std::lock_guard lock(workers.mutex);
  if (workers.are_ended) return nullptr;
  workers.join_those_who_left();
  auto ahead = std::make_shared<CompilationAhead>();
  auto has_left = std::make_shared<std::atomic<bool>>(false);
  workers.all.reserve(workers.all.size() + 1);  // nothing may fail once the thread runs
  try {
    std::thread thread(runtime::on_another_core([ahead, has_left, program = std::move(program)]() mutable {
      ahead->compile(std::move(program));
      ahead.reset();
      has_left->store(true, std::memory_order_release);
    }));
    workers.all.push_back({std::move(thread), std::move(has_left)});
  } catch (const std::system_error&) {
    return nullptr;
  }
  return ahead;
}

void CompilationAhead::compile(ir::Program program) {
  try {
    result_ = std::make_shared<const NativeResult>(native(std::move(program)));
  } catch (const std::exception&) {
    // Then take() returns null.
  }
  is_done_.store(true, std::memory_order_release);
  is_done_.notify_all();
}

std::shared_ptr<const Executable> CompilationAhead::take() {
  const auto start = std::chrono::steady_clock::now();
  if (!is_done_.load(std::memory_order_acquire)) {
    if (in_forked_child()) return nullptr;
    is_done_.wait(false, std::memory_order_acquire);
  }
  if (!result_) return nullptr;
  if (!is_counted_.exchange(true, std::memory_order_relaxed)) count(*result_, start);
  return result_->executable;
}

void end_compilations_ahead() {
  if (in_forked_child()) return;
  std::vector<Worker> begun;
  {
    const std::lock_guard lock(workers.mutex);
    workers.are_ended = true;
    begun = std::exchange(workers.all, {});
  }
  for (Worker& worker : begun) worker.thread.join();
}

}  // namespace weft::engine
