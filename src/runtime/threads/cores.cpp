#include "runtime/threads/cores.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/settings.h"

namespace weft::runtime {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The cores that the calling thread may run on.
struct Affinity {
  size_t bytes = 0;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set{nullptr, [](cpu_set_t* p) { CPU_FREE(p); }};

  /// Null where the system doesn't say.
  Affinity() {
    for (int cpus = 1024; cpus <= 1 << 16; cpus *= 4) {  // the kernel refuses a mask smaller than its own
      set.reset(CPU_ALLOC(cpus));
      bytes = CPU_ALLOC_SIZE(cpus);
      if (set && sched_getaffinity(0, bytes, set.get()) == 0) return;
    }
    set.reset();
  }
  int64_t count() const { return CPU_COUNT_S(bytes, set.get()); }
};

int64_t affinity_cores() {
  const Affinity affinity;
  return std::max<int64_t>(affinity.set ? affinity.count() : std::thread::hardware_concurrency(), 1);
}

std::optional<int64_t> quota_at(const std::filesystem::path& folder) {
  if (const std::string line = first_line(folder / "cpu.max"); !line.empty()) return quota_cores(line);
  const std::string quota = first_line(folder / "cpu.cfs_quota_us");
  if (quota.empty()) return std::nullopt;
  return quota_cores(quota + " " + first_line(folder / "cpu.cfs_period_us"));
}

/// "0::/a" is version 2; "3:cpu,cpuacct:/a" the processor's hierarchy of version 1.
std::optional<int64_t> process_quota_cores() {
  std::ifstream file("/proc/self/cgroup");
  std::optional<int64_t> least;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version2 = controllers == ",,";
    if (!version2 && controllers.find(",cpu,") == std::string::npos) continue;
    const auto quota = group_quota_cores(version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", line.substr(second + 1));
    if (quota && (!least || *quota < *least)) least = quota;
  }
  return least;
}

}  // namespace

int current_core() { return sched_getcpu(); }

void leave_core(int core) {
  const Affinity affinity;
  if (!affinity.set || core < 0 || !CPU_ISSET_S(core, affinity.bytes, affinity.set.get()) || affinity.count() < 2)
    return;
  CPU_CLR_S(core, affinity.bytes, affinity.set.get());
  sched_setaffinity(0, affinity.bytes, affinity.set.get());
  CPU_SET_S(core, affinity.bytes, affinity.set.get());
  sched_setaffinity(0, affinity.bytes, affinity.set.get());
}

std::optional<int64_t> quota_cores(std::string_view cpu_max) {
  std::istringstream stream{std::string(cpu_max)};
  stream.imbue(std::locale::classic());  // the kernel groups no digits, whatever the process's locale does
  double quota = 0, period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  const double cores = quota / period;
  const int64_t whole = static_cast<int64_t>(std::min(cores, 1e6));
  return std::max<int64_t>(whole + (static_cast<double>(whole) < cores ? 1 : 0), 1);
}

std::optional<int64_t> group_quota_cores(const std::filesystem::path& root, std::string_view group) {
  std::optional<int64_t> least;
  for (std::filesystem::path at = std::filesystem::path(group).relative_path();; at = at.parent_path()) {
    const auto quota = quota_at(root / at);
    if (quota && (!least || *quota < *least)) least = quota;
    if (at.empty()) return least;
  }
}

std::optional<int64_t> described_cache_bytes(const std::filesystem::path& folder, int level) {
  for (int i = 0;; ++i) {
    const std::filesystem::path index = folder / ("index" + std::to_string(i));
    const std::string its_level = first_line(index / "level"), size = first_line(index / "size");
    if (its_level.empty()) return std::nullopt;
    if (its_level != std::to_string(level) || first_line(index / "type") == "Instruction") continue;
    int64_t kilobytes = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), kilobytes);
    if (error == std::errc() && std::string_view(end) == "K" && kilobytes > 0) return kilobytes * 1024;
  }
}

namespace {

/// For some processors of AMD the C library reports the L3 of a whole socket, of which a core has a twelfth. So the
/// kernel's description is read first.
int64_t cache_bytes(int level, int name, int64_t otherwise) {
  if (const auto described = described_cache_bytes("/sys/devices/system/cpu/cpu0/cache", level)) return *described;
  const int64_t bytes = ::sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

/// AMD's family 0x19 is Zen 3 and 4, 0x1a Zen 5 (AMD64 Architecture Programmer's Manual, vol. 3, CPUID 1).
CoreKind kind_of_this_cpu() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) return CoreKind::kIntel;
  if (__builtin_cpu_is("znver1")) return CoreKind::kZen1;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &a, &b, &c, &d) == 0) return CoreKind::kOther;
  const unsigned base = a >> 8 & 0xf, family = base == 0xf ? base + (a >> 20 & 0xff) : base;
  if (family >= 0x1a) return CoreKind::kZen5;
#endif
  return CoreKind::kOther;
}

/// Read once, at load: on a virtual machine the question takes the time of a step.
const int64_t kPrivateCacheBytes = cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, int64_t{1} << 20);
const int64_t kSharedCacheBytes = cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, int64_t{8} << 20);
const CoreKind kKindOfThisCpu = kind_of_this_cpu();

}  // namespace

int64_t private_cache_bytes() {
  const int64_t wanted = settings().private_cache_bytes;
  return wanted > 0 ? wanted : kPrivateCacheBytes;
}

int64_t shared_cache_bytes() {
  const int64_t wanted = settings().shared_cache_bytes;
  return wanted > 0 ? wanted : kSharedCacheBytes;
}

CoreKind core_kind() {
  const std::string& wanted = settings().core;
  if (wanted.empty()) return kKindOfThisCpu;
  if (wanted == "intel") return CoreKind::kIntel;
  if (wanted == "zen1") return CoreKind::kZen1;
  if (wanted == "zen5") return CoreKind::kZen5;
  check(wanted == "other", "WEFT_CORE={}: unknown core; known are intel, zen1, zen5, other", wanted);
  return CoreKind::kOther;
}

int64_t usable_cores() {
  const int64_t cores = affinity_cores();
  const auto quota = process_quota_cores();
  return quota ? std::min(cores, *quota) : cores;
}

}  // namespace weft::runtime
