#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace weft::runtime {

/// Threads that run one function together. The PyTorch side implements it on PyTorch's own OpenMP team; OwnTeam is for
/// programs without torch.
class Team {
 public:
  virtual ~Team() = default;
  /// The number of threads run() would like to use now.
  virtual int64_t size() const = 0;
  /// Calls member(thread, threads) once for every thread of one parallel region, all at the same time; `threads` is the
  /// real size of the region, which can be smaller than size(), never larger. Members must not throw, so they must not
  /// allocate either, but where they catch what that throws. Every member treats subnormal numbers as the caller does,
  /// and gets its own mode back afterwards.
  virtual void run(const std::function<void(int64_t thread, int64_t threads)>& member) = 0;
};

/// The caller's thread alone.
class SerialTeam : public Team {
 public:
  int64_t size() const override { return 1; }
  void run(const std::function<void(int64_t, int64_t)>& member) override { member(0, 1); }
};

/// A team of its own threads, kept asleep between calls; `threads` <= 0 takes the cores this process may use.
/// One process-wide instance is enough: run() serialises callers. In a forked child it runs serially.
Team& own_team(int64_t threads = 0);

/// A barrier for the members of one region: spins about 2 us, then yields. Memory written before arrive_and_wait() by
/// any member is visible to all after it.
class SpinBarrier {
 public:
  SpinBarrier() = default;
  explicit SpinBarrier(int64_t members) : members_(members) {}
  /// How many members there are, where only they know. Each says it, the same, before it first arrives.
  void set_members(int64_t members) { members_.store(members, std::memory_order_relaxed); }
  void arrive_and_wait();

 private:
  std::atomic<int64_t> members_{1};
  /// Arrivals since the beginning; every `members_` of them end a phase. One counter, so that the last to arrive sets
  /// the others free by arriving: one transfer of a cache line less than with a flag beside it.
  alignas(64) std::atomic<int64_t> arrived_{0};
};

}  // namespace weft::runtime
