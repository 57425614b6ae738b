#include "operator/warnings.h"

#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "operator/program_table.h"

namespace weft::torch_operator {
namespace {

/// Never destroyed: calls may come while the process ends.
struct Given {
  std::set<std::string> texts;  ///< under lookup_mutex()
  Warner warner = [](const std::string& text) { TORCH_WARN(text); };
};
Given& given = *new Given;

using Texts = std::vector<std::string>;

/// One for each thread, and without a destructor: a thread may still call while it ends.
thread_local int waits = 0;
thread_local Texts* waiting = nullptr;

bool first_time(const std::string& text) {
  const std::lock_guard lock(lookup_mutex());
  return given.texts.insert(text).second;
}

void forget(const Texts& texts) {
  const std::lock_guard lock(lookup_mutex());
  for (const std::string& text : texts) given.texts.erase(text);
}

}  // namespace

WarningsWait::WarningsWait() { ++waits; }
WarningsWait::~WarningsWait() { --waits; }

void warn_once(const std::string& text) {
  if (!first_time(text)) return;
  if (waiting == nullptr) waiting = new Texts;
  waiting->push_back(text);
  deliver_warnings();
}

void deliver_warnings() {
  if (waits > 0 || waiting == nullptr) return;
  const std::unique_ptr<Texts> texts(std::exchange(waiting, nullptr));
  try {
    for (const std::string& text : *texts) given.warner(text);
  } catch (...) {
    forget(*texts);
    throw;
  }
}

void set_warner(Warner warner) {
  const std::lock_guard lock(lookup_mutex());
  given = {.texts = {}, .warner = std::move(warner)};
}

}  // namespace weft::torch_operator
