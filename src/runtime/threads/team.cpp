#include "runtime/threads/team.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/fork.h"
#include "runtime/threads/contention.h"
#include "runtime/threads/cores.h"
#include "runtime/threads/denormals.h"
#include "runtime/threads/spin.h"

namespace weft::runtime {
namespace {

/// True while this thread runs a member. A nested region then runs serially, since it would wait for itself.
thread_local bool in_region = false;

/// How long an idle worker spins before it sleeps: long enough to catch the next call of a tight loop, short beside a
/// time slice.
constexpr double kSpinMicroseconds = 20;

class OwnTeam : public Team {
 public:
  explicit OwnTeam(int64_t threads) : wanted_(threads) {}

  int64_t size() const override { return in_forked_child() ? 1 : wanted_; }

  void run(const std::function<void(int64_t, int64_t)>& member) override {
    if (in_forked_child() || in_region || wanted_ <= 1) {
      member(0, 1);
      return;
    }
    const std::lock_guard one_caller(callers_);
    start_workers();
    const int64_t threads = static_cast<int64_t>(started_) + 1;
    {
      const std::lock_guard lock(mutex_);
      member_ = &member;
      mode_.emplace(DenormalMode::of_this_thread());
      running_.store(started_, std::memory_order_relaxed);
      region_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    in_region = true;
    member(0, threads);
    in_region = false;
    wait_for(done_, [&] { return running_.load(std::memory_order_acquire) == 0; });
  }

 private:
  /// Starts the workers; fewer than wanted if the system refuses more.
  void start_workers() {
    if (tried_) return;
    tried_ = true;
    try {
      for (int64_t i = 1; i < wanted_; ++i) {
        std::thread([this, i] { work(i); }).detach();
        ++started_;
      }
    } catch (const std::exception&) {  // no thread, or no memory for one
    }
  }

  void work(int64_t thread) {
    in_region = true;
    for (uint64_t seen = 0;; ++seen) {
      wait_for(wake_, [&] { return region_.load(std::memory_order_acquire) != seen; });
      mode_->apply();
      (*member_)(thread, static_cast<int64_t>(started_) + 1);
      if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex_);  // else the caller could miss the signal between its check and its sleep
        done_.notify_one();
      }
    }
  }

  template <typename Condition>
  void wait_for(std::condition_variable& variable, Condition condition) {
    if (spin_for(condition, kSpinMicroseconds)) return;
    std::unique_lock lock(mutex_);
    variable.wait(lock, condition);
  }

  const int64_t wanted_;
  std::mutex callers_;
  bool tried_ = false;
  size_t started_ = 0;  // workers; written before the first region, read inside regions
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int64_t, int64_t)>* member_ = nullptr;
  std::optional<DenormalMode> mode_;
  alignas(64) std::atomic<uint64_t> region_{0};
  alignas(64) std::atomic<size_t> running_{0};
};

/// The teams by size. Never destroyed: workers may still sleep in them when the process ends.
struct Teams {
  std::mutex mutex;
  int64_t cores = 0;  // 0: not known yet
  std::map<int64_t, std::unique_ptr<OwnTeam>> by_size;
};
Teams& teams = *new Teams;
SerialTeam serial;

}  // namespace

Team& own_team(int64_t threads) {
  if (in_forked_child()) return serial;  // the mutex may have been held by a thread that is gone
  const std::lock_guard lock(teams.mutex);
  if (threads <= 0) {
    if (teams.cores == 0) teams.cores = usable_cores();
    threads = teams.cores;
  }
  auto& team = teams.by_size[threads];
  if (!team) team = std::make_unique<OwnTeam>(threads);
  return *team;
}

void SpinBarrier::arrive_and_wait() {
  const int64_t before = arrived_.fetch_add(1, std::memory_order_acq_rel);
  const int64_t members = members_.load(std::memory_order_relaxed);
  const int64_t end_of_phase = (before / members + 1) * members;
  if (before + 1 == end_of_phase) return;
  wait_for([&] { return arrived_.load(std::memory_order_acquire) >= end_of_phase; });
}

}  // namespace weft::runtime
