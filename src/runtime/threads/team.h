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
  /// Calls member(thread, threads) once for every thread of one parallel region, all at the same time. `threads` is the
  /// real size of the region, which can be smaller than size() but not larger. Members must not throw; if they
  /// allocate, they catch std::bad_alloc. Every member takes over the caller's mode for subnormal numbers, and gets its
  /// own back afterwards.
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

/// A barrier for the members of one region: waits as wait_for (contention.h). Memory written before arrive_and_wait()
/// by any member is visible to all after it.
class SpinBarrier {
 public:
  SpinBarrier() = default;
  explicit SpinBarrier(int64_t members) : members_(members) {}
  /// Sets the number of members, where only the members know it. Each must set the same number before it first arrives.
  void set_members(int64_t members) { members_.store(members, std::memory_order_relaxed); }
  void arrive_and_wait();

 private:
  std::atomic<int64_t> members_{1};
  /// Arrivals since the beginning; every `members_` of them end a phase. With a single counter the last arrival itself
  /// releases the others, which saves the transfer of a cache line that a separate flag would cost.
  alignas(64) std::atomic<int64_t> arrived_{0};
};

}  // namespace weft::runtime
