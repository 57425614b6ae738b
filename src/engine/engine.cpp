#include "engine/engine.h"

#include <mutex>
#include <unordered_map>

#include "engine/interpreted.h"
#include "ir/parser.h"

namespace weft::engine {
namespace {

std::mutex mutex;
std::unordered_map<std::string, std::shared_ptr<const Executable>>& executables() {
  static auto* it = new std::unordered_map<std::string, std::shared_ptr<const Executable>>;
  return *it;
}
Stats counted;

}  // namespace

std::shared_ptr<const Executable> compile(std::string_view text) {
  std::string key(text);
  {
    std::lock_guard lock(mutex);
    if (auto found = executables().find(key); found != executables().end()) return found->second;
  }
  auto executable = interpreted(ir::parse(text));
  std::lock_guard lock(mutex);
  ++counted.compiled;
  return executables().try_emplace(std::move(key), std::move(executable)).first->second;
}

Stats stats() {
  std::lock_guard lock(mutex);
  return counted;
}

void count_fallback(const std::string& reason) {
  std::lock_guard lock(mutex);
  ++counted.fallbacks[reason];
}

}  // namespace weft::engine
