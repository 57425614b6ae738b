#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// The settings from the environment, read once a process. Every variable that Weft reads is a field here.
struct Settings {
  bool enabled = true;                     ///< WEFT=0 switches the override kernels off.
  bool strict = false;                     ///< WEFT_STRICT=1: a fallback is an error.
  bool verify = false;                     ///< WEFT_VERIFY=1: verify after every pass (always on in debug builds).
  std::vector<std::string> disabled;       ///< WEFT_DISABLE=hoist,sink: passes left out.
  std::string dump;                        ///< WEFT_DUMP=dir: every stage of every program is written there.
  std::string isa;                         ///< WEFT_ISA=amx|avx512|avx2|generic: forced instead of detected; for tests
                                           ///< amx_emulated, which any CPU runs.
  std::string core;                        ///< WEFT_CORE=intel|zen1|zen5|other: whose costs choices are made by,
                                           ///< instead of this CPU's (runtime/threads/cores.h).
  int64_t private_cache_bytes = 0;         ///< WEFT_PRIVATE_CACHE_KB=512: a core's own cache, as choices take it; 0: as
                                           ///< the system says.
  int64_t shared_cache_bytes = 0;          ///< WEFT_SHARED_CACHE_KB=32768: the same of the cache that cores share.
  std::string cache_dir;                   ///< $XDG_CACHE_HOME/weft or ~/.cache/weft; empty with WEFT_CACHE=0.
  int64_t cache_bytes = int64_t{1} << 29;  ///< WEFT_CACHE_MB=512: objects kept there; those read last stay.
  int64_t arena_bytes = int64_t{1} << 30;  ///< WEFT_ARENA_MB=1024: unused memory kept for the next call.
  int64_t captured = 512;                  ///< WEFT_CAPTURED=512: programs kept of steps, and as many of the device.
  int64_t executables = 1024;              ///< WEFT_EXECUTABLES=1024: compiled programs kept; those run last stay.
  bool share_all = false;                  ///< WEFT_SHARE_ALL=1: threads share work that is too little to be worth it.
  std::string pack;                        ///< WEFT_PACK=always|never|way (runtime/kernels/packs.h); else what pays.
  int64_t window = -1;                     ///< WEFT_WINDOW=3: steps of a window, 0: none; else where it pays.
  int64_t side_by_side = -1;               ///< WEFT_SIDE_BY_SIDE=1: scans at the same time that can be, 0: none; else
                                           ///< where it pays.
  int64_t contention = -1;                 ///< WEFT_CONTENTION=0: threads share work as if nobody else used the cores;
                                           ///< 1: as if others did; 1 + n: as if it showed at the n-th look at the
                                           ///< waits of a scan; else as long waits tell.
  int64_t stream = -1;                     ///< WEFT_STREAM=1: loops store their stacks past the caches, 0: they don't;
                                           ///< else where it pays.
  bool guard = false;                      ///< WEFT_GUARD=1: every buffer between pages that fault, and checked.
  bool delays = false;                     ///< WEFT_DELAYS=1: for tests, threads wait at random between stages.
  bool time_passes = false;                ///< WEFT_TIME=1: microseconds of each pass to stderr.
};

/// The process's settings.
const Settings& settings();

/// For tests and command lines: the settings, to be changed before the first compile.
Settings& mutable_settings();

}  // namespace weft
