#include "operator/program_table.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/fork.h"
#include "base/settings.h"
#include "ir/parser.h"
#include "ir/printer.h"

namespace weft::torch_operator {

namespace {

/// Never destroyed: calls may come while the process ends.
std::mutex& mutex = hold_across_fork(*new std::mutex, LockRank::kLookup);

/// By contents; the keys are the programs' own texts. Never destroyed either.
auto& table = *new std::unordered_map<std::string_view, std::unique_ptr<const CallProgram>>;

/// Counts the calls, to tell which program was called last.
std::atomic<int64_t> uses{1};

/// This thread's recently used programs by the address of their text. Only interned texts are entered. They are never
/// freed, so an address can't come to mean another text.
struct RecentProgram {
  const char* address = nullptr;
  const CallProgram* program = nullptr;
};
constexpr size_t kRecent = 64;
thread_local std::array<RecentProgram, kRecent> recent_programs;

RecentProgram& recent_slot(const char* address) {
  auto bits = reinterpret_cast<uintptr_t>(address);
  return recent_programs[((bits >> 4) ^ (bits >> 12)) % kRecent];
}

const CallProgram& insert(std::string text, ir::Program program) {
  auto fresh = std::make_unique<const CallProgram>(std::move(text), std::move(program));
  std::lock_guard lock(lookup_mutex());
  std::string_view key = fresh->text();
  return *table.try_emplace(key, std::move(fresh)).first->second;
}

const CallProgram* find_by_contents(std::string_view text) {
  std::lock_guard lock(lookup_mutex());
  auto found = table.find(text);
  return found == table.end() ? nullptr : found->second.get();
}

}  // namespace

std::mutex& lookup_mutex() { return mutex; }

const CallProgram& find_program(std::string_view text) {
  RecentProgram& by_address = recent_slot(text.data());
  if (by_address.address == text.data() && by_address.program->text().size() == text.size()) return *by_address.program;
  const CallProgram* program = find_by_contents(text);
  if (!program) program = &insert(std::string(text), ir::parse(text));
  recent_slot(program->text().data()) = {program->text().data(), program};
  return *program;
}

const CallProgram& intern(ir::Program program) {
  std::string text = ir::print(program);
  if (const CallProgram* known = find_by_contents(text)) return *known;
  return insert(std::move(text), std::move(program));
}

CallProgram::CallProgram(std::string text, ir::Program program)
    : text_(std::move(text)), program_(std::move(program)), signature_(program_) {}

std::shared_ptr<const engine::Executable> CallProgram::executable() const {
  last_use_.store(uses.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  {
    std::lock_guard lock(lookup_mutex());
    if (executable_) return executable_;
  }
  auto compiled = engine::compile(text_, program_);
  {
    std::lock_guard lock(lookup_mutex());
    executable_ = compiled;
  }
  free_executables();
  return compiled;
}

/// Frees the least recently used executables, an eighth of the limit at once. A call that is running holds its own.
void CallProgram::free_executables() {
  std::vector<std::shared_ptr<const engine::Executable>> freed;  // after the lock
  std::lock_guard lock(lookup_mutex());
  std::vector<std::pair<int64_t, const CallProgram*>> kept;
  for (const auto& [text, program] : table) {
    if (program->is_compiled()) kept.emplace_back(program->last_use_.load(std::memory_order_relaxed), program.get());
  }
  const auto most = static_cast<size_t>(settings().executables);
  if (kept.size() <= most) return;
  std::ranges::sort(kept);
  kept.resize(kept.size() - most + most / 8);
  for (const auto& [_, program] : kept) freed.push_back(std::exchange(program->executable_, nullptr));
}

int64_t kept_executables() {
  std::lock_guard lock(lookup_mutex());
  return std::ranges::count_if(table, [](const auto& entry) { return entry.second->is_compiled(); });
}

const Derivative& CallProgram::derivative(const std::vector<bool>& wanted) const {
  {
    std::lock_guard lock(lookup_mutex());
    if (auto found = derivatives_.find(wanted); found != derivatives_.end()) return *found->second;
  }
  passes::Vjp vjp = passes::vjp(program_, wanted);
  auto derived = std::make_unique<const Derivative>(
      Derivative{&intern(std::move(vjp.forward)), &intern(std::move(vjp.backward)), std::move(vjp.saved_inputs),
                 std::move(vjp.saved_outputs), vjp.residuals});
  std::lock_guard lock(lookup_mutex());
  return *derivatives_.try_emplace(wanted, std::move(derived)).first->second;
}

const CallProgram& CallProgram::derive(Derived& known, const std::vector<bool>& inputs,
                                       ir::Program (*pass)(const ir::Program&, const std::vector<bool>&)) const {
  {
    std::lock_guard lock(lookup_mutex());
    if (auto found = known.find(inputs); found != known.end()) return *found->second;
  }
  const CallProgram& derived = intern(pass(program_, inputs));
  std::lock_guard lock(lookup_mutex());
  return *known.try_emplace(inputs, &derived).first->second;
}

const CallProgram& CallProgram::of_primals(const std::vector<bool>& wanted) const {
  return derive(of_primals_, wanted, passes::vjp_of_primals);
}

const CallProgram& CallProgram::of_tangents(const std::vector<bool>& varied) const {
  return derive(of_tangents_, varied, passes::jvp_of_primals);
}

}  // namespace weft::torch_operator
