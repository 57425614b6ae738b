#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "runtime/threads/spin.h"

namespace weft::runtime {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

/// Whether other programs use the cores that this process's threads run on. A wait for another thread is then a wait
/// for the system's scheduler, milliseconds at a time: threads that meet at each step of a loop take a hundred times as
/// long as one thread alone.
///
/// No system call tells, so long waits are reported. Two reports soon after each other are believed for a while: at
/// first for 10 ms, then for twice as long each time that the next try finds contention again, at most for a second.
class Contention {
 public:
  /// Whether contention was reported, and the report is still believed. Settings::contention overrides it.
  bool is_high() const;
  /// Reports a wait so long that the waiter, or the thread it waits for, was descheduled.
  void report() { report(Clock::now()); }

  /// The same two at a given time.
  bool is_high(Clock::time_point now) const;
  void report(Clock::time_point now);
  /// Counts a call that runs differently because contention is high.
  void count_call() { calls_.fetch_add(1, std::memory_order_relaxed); }
  /// The number of calls since the process began that ran differently because contention was high.
  int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> until_{0};  // a time; 0: never
  std::atomic<int64_t> period_{0};
  std::atomic<int64_t> last_{0};  // the last report
  std::atomic<int64_t> calls_{0};
};

/// The process's contention.
Contention& contention();

/// How long this thread has waited in wait_for so far. Waits that ended while it was spinning don't count.
Nanoseconds waited_here();

/// One wait of this thread. It yields the core between looks, and reports contention if another thread then kept the
/// core.
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
