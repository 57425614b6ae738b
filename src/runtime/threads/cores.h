#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace weft::runtime {

/// The cores that this process may use: those of its affinity mask, but no more than its control group's quota allows.
int64_t usable_cores();

/// The core that the calling thread is on; -1 where the system doesn't say.
int current_core();

/// Moves the calling thread to another core, if it is on `core` and may run on others.
void leave_core(int core);

/// Wraps `body`, the function of a new thread, so that the thread first leaves its maker's core. A new thread begins on
/// that core. If its maker goes on running, Linux takes up to 10 ms to move one of the two: as long as it takes to
/// compile a small program.
template <typename Body>
auto on_another_core(Body body) {
  return [core = current_core(), body = std::move(body)]() mutable {
    leave_core(core);
    body();
  };
}

/// The kinds of cores that have different costs with the same instructions.
enum class CoreKind : uint8_t {
  kIntel,
  kZen1,
  kZen5,  ///< and later ones of AMD
  kOther  ///< Zen 2 to 4 among them
};

/// This CPU's kind, or the one that WEFT_CORE names (user's error if the name is unknown).
CoreKind core_kind();

/// Bytes of a core's own cache (L2): WEFT_PRIVATE_CACHE_KB, or else what the system says, or else 1 MiB.
int64_t private_cache_bytes();

/// Bytes of the cache that a core shares with others (L3): WEFT_SHARED_CACHE_KB, else the system's answer, else 8 MiB.
int64_t shared_cache_bytes();

/// Bytes of a core's unified cache of a level, as the kernel describes it in `folder`
/// (/sys/devices/system/cpu/cpu0/cache); empty if the kernel doesn't.
std::optional<int64_t> described_cache_bytes(const std::filesystem::path& folder, int level);

/// The quota of `cpu.max` ("200000 100000", "max 100000") in cores, rounded up; empty when there is none.
std::optional<int64_t> quota_cores(std::string_view cpu_max);

/// The least quota of the control group `group` ("/a/b") and those above it, in the hierarchy mounted at `root`: files
/// cpu.max (version 2) or cpu.cfs_quota_us and cpu.cfs_period_us (version 1).
std::optional<int64_t> group_quota_cores(const std::filesystem::path& root, std::string_view group);

}  // namespace weft::runtime
