#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/plan/window.h"

namespace weft::runtime {

/// Memory in pages of its own between two pages that fault when touched, for tests of accesses out of bounds. It is
/// filled with kCanary, a NaN if read as a float, so that reads of unwritten memory show too.
class GuardedMemory {
 public:
  static constexpr std::byte kCanary{0xff};
  enum class Side : uint8_t { kEnd, kStart };

  /// `bytes` bytes that end at the guard page behind them (kEnd; alignment may leave up to `alignment` - 1 bytes of
  /// canary between) or start at the guard page before them (kStart). With no bytes, every access faults.
  /// std::bad_alloc when the system refuses.
  GuardedMemory(int64_t bytes, Side side, int64_t alignment = 1);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  GuardedMemory& operator=(GuardedMemory&&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// Makes later writes fault.
  void make_read_only();
  /// Whether the canaries before and after the memory, on its own pages, are unchanged.
  bool is_intact() const;

 private:
  std::byte* mapping_ = nullptr;  ///< a page that faults, `inner_` bytes, a page that faults
  int64_t inner_ = 0;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Replaces the arena of a run with Settings::guard: each buffer has guarded memory of its own, and none share memory.
class GuardedBuffers {
 public:
  /// `members`, `others`: as for ArenaPlanner::lay_out.
  GuardedBuffers(const Plan& plan, const std::vector<int64_t>& symbols, const std::vector<int64_t>& members,
                 const std::vector<BufferBytes>& others);

  /// Sets the entries of `buffers` that belong to buffers of the arena.
  void place(std::span<void*> buffers) const;
  /// Internal error, which names the buffer, if something was written outside of a buffer or between its instances.
  void check() const;

 private:
  struct Placed {
    size_t buffer;
    int64_t exact, instance;  ///< bytes of one instance, without and with padding to a cache line
    int64_t instances;
    GuardedMemory memory;
  };
  const Plan& plan_;
  std::vector<Placed> placed_;
};

}  // namespace weft::runtime
