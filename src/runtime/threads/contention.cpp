#include "runtime/threads/contention.h"

#include <algorithm>

#include "base/settings.h"

namespace weft::runtime {
namespace {

using std::chrono::milliseconds;

/// A yield that takes this long ran another thread; on an idle core it takes a microsecond.
constexpr auto kKeptByOthers = std::chrono::microseconds(500);

/// Reports this close together come from several threads in one wait.
constexpr int64_t kSameWait = Nanoseconds(std::chrono::microseconds(500)).count();
/// Reports this close together have one cause. Single reports come from the system's own work, some a second on a quiet
/// machine.
constexpr int64_t kTogether = Nanoseconds(milliseconds(20)).count();

constexpr int64_t kFirstPeriod = Nanoseconds(milliseconds(10)).count();
constexpr int64_t kLastPeriod = Nanoseconds(milliseconds(1000)).count();

thread_local Nanoseconds waited{0};

int64_t since_beginning(Clock::time_point now) { return Nanoseconds(now.time_since_epoch()).count(); }

}  // namespace

bool Contention::is_high() const {
  if (const int64_t wanted = settings().contention; wanted >= 0) return wanted == 1;
  // Avoids reading the clock if nobody has reported.
  return until_.load(std::memory_order_relaxed) != 0 && is_high(Clock::now());
}

bool Contention::is_high(Clock::time_point now) const {
  return since_beginning(now) < until_.load(std::memory_order_relaxed);
}

// If two threads report at the same time, both may double the period, or one may overwrite the other's. Only speed
// depends on it.
void Contention::report(Clock::time_point now) {
  const int64_t time = since_beginning(now), until = until_.load(std::memory_order_relaxed);
  const int64_t last = last_.load(std::memory_order_relaxed);
  if (time < until || time - last < kSameWait) return;
  const bool is_second = time - last <= kTogether;
  last_.store(is_second ? 0 : time, std::memory_order_relaxed);
  if (!is_second) return;
  const int64_t period = period_.load(std::memory_order_relaxed);
  const bool again = time < until + 4 * period;
  const int64_t next = again ? std::min(2 * period, kLastPeriod) : kFirstPeriod;
  period_.store(next, std::memory_order_relaxed);
  until_.store(time + next, std::memory_order_relaxed);
}

Contention& contention() {
  static constinit Contention instance;
  return instance;
}

Nanoseconds waited_here() { return waited; }

Wait::~Wait() { waited += Clock::now() - begin_; }

void Wait::yield() {
  const auto before = Clock::now();
  sched_yield();
  if (Clock::now() - before > kKeptByOthers) contention().report();
}

}  // namespace weft::runtime
