#include "engine/program_cache.h"

#include <fmt/ranges.h>

#include <charconv>
#include <string_view>
#include <utility>

#include "base/build_id.h"
#include "base/error.h"
#include "base/settings.h"
#include "ir/text/printer.h"
#include "jit/jit.h"
#include "jit/object_cache.h"
#include "runtime/plan/plan_text.h"

namespace weft::engine {
namespace {

/// At load, since a static of a function has a lock that no fork can hold (base/fork.h).
const std::string& this_build = *new std::string(build_id());

/// The settings that plans or machine code may depend on. A new setting doesn't compile here until it is named, and
/// then is either in the text or in the list of those that only say how a plan is run, kept or watched.
std::string words_of(const Settings& settings) {
  const auto& [enabled, strict, verify, disabled, dump, isa, core, private_cache_bytes, shared_cache_bytes, cache_dir,
               cache_bytes, arena_bytes, captured, executables, share_all, pack, window, side_by_side, contention,
               stream, guard, delays, time_passes] = settings;
  static_cast<void>(
      std::tie(enabled, strict, verify, dump, cache_dir, cache_bytes, arena_bytes, captured, executables, time_passes));
  return fmt::format(
      "without {} isa {} core {} caches {} {} share {} pack {} window {} side {} contention {} stream {} guard {} "
      "delays {}",
      fmt::join(disabled, ","), isa, core, private_cache_bytes, shared_cache_bytes, share_all, pack, window,
      side_by_side, contention, stream, guard, delays);
}

/// Takes "<number> <so many bytes>" from the front of a text.
std::optional<std::string_view> take_part(std::string_view& text) {
  size_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  if (bytes > text.size()) return std::nullopt;
  const std::string_view part = text.substr(0, bytes);
  text.remove_prefix(bytes);
  return part;
}

}  // namespace

std::string program_key(const ir::Program& program, const planning::Target& target) {
  const Settings& now = settings();
  if (now.cache_dir.empty() || this_build.empty() || !now.dump.empty() || now.time_passes) return "";
  return fmt::format("program of {}, {}, {}, {}\n{}", this_build, jit::code_options(), target.description(),
                     words_of(now), ir::print(program));
}

std::optional<StoredProgram> load_program(const std::string& key) {
  if (key.empty()) return std::nullopt;
  const std::optional<std::string> bytes = jit::load_object(key, jit::Stored::kProgram);
  if (!bytes) return std::nullopt;
  std::string_view rest = *bytes;
  const auto plan = take_part(rest);
  if (!plan) return std::nullopt;
  StoredProgram program;
  try {
    program.plan = runtime::read_plan(*plan);
  } catch (const Error&) {
    return std::nullopt;
  }
  while (!rest.empty()) {
    const auto object = take_part(rest);
    if (!object) return std::nullopt;
    program.objects.emplace_back(*object);
  }
  return program;
}

void store_program(const std::string& key, const runtime::Plan& plan, const std::vector<std::string>& objects) {
  if (key.empty()) return;
  const std::string text = runtime::write_plan(plan);
  std::string bytes = fmt::format("{} {}", text.size(), text);
  for (const std::string& object : objects) bytes += fmt::format("{} ", object.size()) + object;
  jit::store_object(key, bytes, jit::Stored::kProgram);
}

void check_stored(const std::string& key, const runtime::Plan& plan) {
  if (const auto stored = load_program(key))
    internal_check(stored->plan == plan, "a plan on disk is another one than that of the same program, {}", key);
}

}  // namespace weft::engine
