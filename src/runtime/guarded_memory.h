#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/plan.h"

namespace weft::runtime {

/// Memory of its own pages between two that fault when touched, for tests that look for accesses past an end. All of it
/// holds kCanary at first: as a float a NaN, so that what reads it before it is written shows too.
class GuardedMemory {
 public:
  static constexpr std::byte kCanary{0xff};
  enum class Side : uint8_t { kEnd, kStart };

  /// `bytes` bytes right before the page behind them (kEnd; up to `alignment` - 1 bytes of canary may lie between) or
  /// right behind the page before them (kStart). With no bytes, every access faults. std::bad_alloc when the system
  /// refuses.
  GuardedMemory(int64_t bytes, Side side, int64_t alignment = 1);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  GuardedMemory& operator=(GuardedMemory&&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// From here on a write faults.
  void make_read_only();
  /// Whether the bytes of the same pages before and behind the memory are as they were.
  bool is_intact() const;

 private:
  std::byte* mapping_ = nullptr;  ///< a page that faults, `inner_` bytes, a page that faults
  int64_t inner_ = 0;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// The arena of a run with Settings::guard: each buffer in guarded memory of its own, none in another's place.
class GuardedBuffers {
 public:
  /// `members`: as ArenaPlanner::lay_out takes them.
  GuardedBuffers(const Plan& plan, const std::vector<int64_t>& symbols, const std::vector<int64_t>& members);

  /// Sets the entries of the buffers that have memory of the arena's.
  void place(std::vector<void*>& buffers) const;
  /// Internal error naming the buffer beside which, or between whose instances, something was written.
  void check() const;

 private:
  struct Placed {
    size_t buffer;
    int64_t exact, instance;  ///< bytes of one instance, and with what pads it to a cache line
    int64_t instances;
    GuardedMemory memory;
  };
  const Plan& plan_;
  std::vector<Placed> placed_;
};

}  // namespace weft::runtime
