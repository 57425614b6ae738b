#include "base/settings.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/setting_names.h"

namespace weft {
namespace {

/// Constant when the library is loaded: settings are read while other files' objects are made.
constinit std::vector<std::string>* names = nullptr;

std::string variable(const char* name) {
  if (names == nullptr) names = new std::vector<std::string>;
  names->emplace_back(name);
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_on(const char* name, bool fallback) {
  std::string value = variable(name);
  if (value.empty()) return fallback;
  return value != "0";
}

/// In bytes.
int64_t megabytes(const char* name, int64_t fallback) {
  std::string value = variable(name);
  return value.empty() ? fallback : std::clamp<int64_t>(std::atoll(value.c_str()), 0, int64_t{1} << 32) << 20;
}

/// The setting's number of kilobytes, in bytes; 0 if it isn't set.
int64_t kilobytes(const char* name) {
  return std::clamp<int64_t>(std::atoll(variable(name).c_str()), 0, int64_t{1} << 32) << 10;
}

int64_t not_negative(const char* name, int64_t fallback) {
  std::string value = variable(name);
  return value.empty() ? fallback : std::max<int64_t>(std::atoll(value.c_str()), 0);
}

/// At least 1.
int64_t positive(const char* name, int64_t fallback) {
  std::string value = variable(name);
  return value.empty() ? fallback : std::max<int64_t>(std::atoll(value.c_str()), 1);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

std::string cache_directory() {
  if (!is_on("WEFT_CACHE", true)) return "";
  if (std::string base = variable("XDG_CACHE_HOME"); !base.empty()) return base + "/weft";
  if (std::string home = variable("HOME"); !home.empty()) return home + "/.cache/weft";
  return "";
}

Settings read() {
  Settings s;
  s.enabled = is_on("WEFT", true);
  s.strict = is_on("WEFT_STRICT", false);
#ifdef NDEBUG
  s.verify = is_on("WEFT_VERIFY", false);
#else
  s.verify = is_on("WEFT_VERIFY", true);
#endif
  s.disabled = split(variable("WEFT_DISABLE"));
  s.dump = variable("WEFT_DUMP");
  s.isa = variable("WEFT_ISA");
  s.core = variable("WEFT_CORE");
  s.private_cache_bytes = kilobytes("WEFT_PRIVATE_CACHE_KB");
  s.shared_cache_bytes = kilobytes("WEFT_SHARED_CACHE_KB");
  s.cache_dir = cache_directory();
  s.arena_bytes = megabytes("WEFT_ARENA_MB", s.arena_bytes);
  s.cache_bytes = megabytes("WEFT_CACHE_MB", s.cache_bytes);
  s.captured = positive("WEFT_CAPTURED", s.captured);
  s.executables = positive("WEFT_EXECUTABLES", s.executables);
  s.share_all = is_on("WEFT_SHARE_ALL", false);
  s.pack = variable("WEFT_PACK");
  s.window = not_negative("WEFT_WINDOW", s.window);
  s.side_by_side = not_negative("WEFT_SIDE_BY_SIDE", s.side_by_side);
  s.contention = not_negative("WEFT_CONTENTION", s.contention);
  s.stream = not_negative("WEFT_STREAM", s.stream);
  s.guard = is_on("WEFT_GUARD", false);
  s.delays = is_on("WEFT_DELAYS", false);
  s.time_passes = is_on("WEFT_TIME", false);
  return s;
}

}  // namespace

Settings& mutable_settings() {
  static Settings instance = read();
  return instance;
}

const Settings& settings() { return mutable_settings(); }

const std::vector<std::string>& setting_names() {
  settings();
  return *names;
}

namespace {

[[maybe_unused]] const Settings& settings_made_at_load = settings();

}  // namespace

}  // namespace weft
