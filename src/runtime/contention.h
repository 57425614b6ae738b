#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "runtime/spin.h"

namespace weft::runtime {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

/// Whether others use the cores that this process's threads run on. A thread that waits for another one then waits for
/// the system's scheduler, milliseconds at a time: threads that meet at each step of a loop take a hundred times as
/// long as one of them by itself.
///
/// Nobody says so beforehand, so waits that took long are reported. Two of them soon after each other are believed for
/// a while: at first for 10 ms, for twice as long each time that the next try finds the same, at most for a second.
class Contention {
 public:
  /// Whether it was reported, and is believed still. Settings::contention may say.
  bool is_high() const;
  /// A thread waited for so long that one that it waits for, or it itself, had no core meanwhile.
  void report() { report(Clock::now()); }

  /// The same at some time.
  bool is_high(Clock::time_point now) const;
  void report(Clock::time_point now);
  /// A call runs in another way since it is high.
  void count_call() { calls_.fetch_add(1, std::memory_order_relaxed); }
  /// Such calls since the process began.
  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> until_{0};  // since the clock's beginning; 0: never reported
  std::atomic<int64_t> period_{0};
  std::atomic<int64_t> last_{0};  // report
  std::atomic<int64_t> calls_{0};
};

/// The process's.
Contention& contention();

/// How long this thread has waited in wait_for so far, but for waits that ended while it was spinning.
Nanoseconds waited_here();

/// One wait of this thread, which gives its core away between looks. Reports it if somebody else then kept the core.
class Wait {
 public:
  Wait() : begin_(Clock::now()) {}
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait();

  void yield();

 private:
  Clock::time_point begin_;
};

/// Waits until done() holds: spins for about 2 us, then yields the core between looks. With fewer cores than threads, a
/// thread that spun longer would take the core from the thread that it waits for.
template <typename Done>
void wait_for(Done done) {
  if (spin_for(done, 2)) return;
  for (Wait wait; !done();) wait.yield();
}

}  // namespace weft::runtime
