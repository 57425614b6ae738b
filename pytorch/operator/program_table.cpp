#include "operator/program_table.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/fork.h"
#include "base/settings.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "passes/differentiation/own_derivatives.h"
#include "runtime/threads/cores.h"

namespace weft::torch_operator {

namespace {

/// Never destroyed: calls may come while the process ends.
std::mutex& mutex = hold_across_fork(*new std::mutex, LockRank::kLookup);

/// Counts look-ups: its value tells which program was asked for last.
std::atomic<int64_t> uses{1};

}  // namespace

/// All programs, by their texts. The table is bounded: it drops executables of the least recently used programs, and
/// least recently used programs that nobody else holds.
class ProgramTable {
 public:
  ProgramRef find(std::string_view text) const {
    std::lock_guard lock(mutex);
    auto found = programs_.find(text);
    return found == programs_.end() ? nullptr : found->second;
  }

  /// The table's program for this text, or this program if there is none.
  ProgramRef insert(std::string text, SharedProgram program) {
    auto fresh = std::make_shared<const CallProgram>(std::move(text), std::move(program));
    touch(*fresh);
    Dropped dropped;  // freed after the lock
    std::lock_guard lock(mutex);
    const auto [found, is_new] = programs_.try_emplace(std::string_view(fresh->text()), fresh);
    if (is_new) drop_programs(dropped);
    return found->second;
  }

  /// The program's executable; `executable` if it has none yet.
  std::shared_ptr<const engine::Executable> compiled(const CallProgram& program,
                                                     std::shared_ptr<const engine::Executable> executable) {
    Dropped dropped;
    std::lock_guard lock(mutex);
    if (!program.executable_) program.executable_ = std::move(executable);
    dropped.ahead.push_back(std::exchange(program.ahead_, nullptr));
    auto kept = program.executable_;
    drop_executables(dropped);
    return kept;
  }

  /// Keeps `ahead` for the program's first use, unless that has already happened.
  void begun(const CallProgram& program, std::shared_ptr<engine::CompilationAhead> ahead) {
    Dropped dropped;
    std::lock_guard lock(mutex);
    if (program.executable_) return dropped.ahead.push_back(std::move(ahead));
    program.ahead_ = std::move(ahead);
    drop_executables(dropped);
  }

  KeptPrograms kept() const {
    std::lock_guard lock(mutex);
    auto executables = std::ranges::count_if(programs_, [](const auto& entry) { return is_compiled(*entry.second); });
    return {std::ssize(programs_), executables};
  }

  static void touch(const CallProgram& program) {
    program.last_use_.store(uses.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  struct Dropped {
    std::vector<ProgramRef> programs;
    std::vector<std::shared_ptr<const engine::Executable>> executables;
    std::vector<std::shared_ptr<engine::CompilationAhead>> ahead;
  };
  using Aged = std::vector<std::pair<int64_t, const CallProgram*>>;

  static bool is_compiled(const CallProgram& program) { return program.executable_ || program.ahead_; }

  /// Leaves in the list only the programs to drop: the least recently used ones beyond the limit, and an eighth of the
  /// limit more, so that the limit isn't reached again soon.
  static void keep_oldest(Aged& programs) {
    const auto most = static_cast<size_t>(settings().executables);
    if (programs.size() <= most) return programs.clear();
    std::ranges::sort(programs);
    programs.resize(programs.size() - most + most / 8);
  }

  /// Frees executables beyond the limit. A running call holds its own executable.
  void drop_executables(Dropped& dropped) {
    Aged compiled;
    for (const auto& [text, program] : programs_)
      if (is_compiled(*program))
        compiled.emplace_back(program->last_use_.load(std::memory_order_relaxed), program.get());
    keep_oldest(compiled);
    for (const auto& [_, program] : compiled) {
      dropped.executables.push_back(std::exchange(program->executable_, nullptr));
      dropped.ahead.push_back(std::exchange(program->ahead_, nullptr));
    }
  }

  /// Frees programs beyond the limit that are not compiled and that nobody else holds. Their derivatives, which only
  /// they hold, may be freed the next time.
  void drop_programs(Dropped& dropped) {
    if (programs_.size() < next_look_) return;
    Aged idle;
    for (const auto& [text, program] : programs_)
      if (!is_compiled(*program) && program.use_count() == 1)
        idle.emplace_back(program->last_use_.load(std::memory_order_relaxed), program.get());
    keep_oldest(idle);
    for (const auto& [_, program] : idle) {
      auto found = programs_.find(std::string_view(program->text()));
      dropped.programs.push_back(std::move(found->second));
      programs_.erase(found);
    }
    next_look_ = programs_.size() + static_cast<size_t>(settings().executables) / 8 + 1;
  }

  std::unordered_map<std::string_view, ProgramRef> programs_;  ///< the keys are the programs' own texts
  size_t next_look_ = 0;                                       ///< at how many programs to look for programs to drop
};

namespace {

/// Never destroyed either.
auto& all_programs = *new ProgramTable;

/// This thread's recently used programs, by the address of their text.
struct RecentPrograms {
  static constexpr size_t kCount = 64;
  struct Entry {
    const char* address = nullptr;
    std::weak_ptr<const CallProgram> program;
  };
  std::array<Entry, kCount> entries;

  Entry& at(const char* address) {
    auto bits = reinterpret_cast<uintptr_t>(address);
    return entries[((bits >> 4) ^ (bits >> 12)) % kCount];
  }
  ~RecentPrograms();
};
thread_local bool recent_are_gone = false;  // a thread may still call while it ends
thread_local RecentPrograms recent;
RecentPrograms::~RecentPrograms() { recent_are_gone = true; }

/// The program whose text has this address; null if no living program has it. Another text at the address of a freed
/// one is not found.
ProgramRef find_recent(std::string_view text) {
  if (recent_are_gone) return nullptr;
  const RecentPrograms::Entry& entry = recent.at(text.data());
  if (entry.address != text.data()) return nullptr;
  ProgramRef program = entry.program.lock();
  return program && program->text().size() == text.size() ? program : nullptr;
}

/// The program of the innermost ProgramAtHand.
thread_local const ProgramRef* at_hand = nullptr;

}  // namespace

std::mutex& lookup_mutex() { return mutex; }

ProgramAtHand::ProgramAtHand(const ProgramRef& program) : before_(std::exchange(at_hand, &program)) {
  ProgramTable::touch(*program);
}

ProgramAtHand::~ProgramAtHand() { at_hand = before_; }

ProgramRef find_program(std::string_view text) {
  if (at_hand != nullptr) {
    const std::string& own = (*at_hand)->text();
    if (own.data() == text.data() && own.size() == text.size()) return *at_hand;
  }
  ProgramRef program = find_recent(text);
  if (!program) {
    program = all_programs.find(text);
    if (!program)
      program = all_programs.insert(std::string(text), std::make_shared<const ir::Program>(ir::parse(text)));
    const char* address = program->text().data();
    if (!recent_are_gone) recent.at(address) = {address, program};
  }
  ProgramTable::touch(*program);
  return program;
}

ProgramRef intern(ir::Program program) { return intern(std::make_shared<const ir::Program>(std::move(program))); }

ProgramRef intern(SharedProgram program) {
  std::string text = ir::print(*program);
  if (ProgramRef known = all_programs.find(text)) return known;
  return all_programs.insert(std::move(text), std::move(program));
}

KeptPrograms kept_programs() { return all_programs.kept(); }

CallProgram::CallProgram(std::string text, SharedProgram program)
    : text_(std::move(text)), program_(std::move(program)), signature_(*program_) {}

std::shared_ptr<const engine::Executable> CallProgram::executable() const {
  std::shared_ptr<engine::CompilationAhead> ahead;
  {
    std::lock_guard lock(lookup_mutex());
    if (executable_) return executable_;
    ahead = ahead_;
  }
  if (ahead)
    if (auto compiled = ahead->take()) return all_programs.compiled(*this, std::move(compiled));
  // Two threads may compile the program at once; the executable of the first to finish is kept.
  return all_programs.compiled(*this, engine::compile(*program_));
}

void CallProgram::compile_ahead() const {
  if (was_asked_for_ahead_.load(std::memory_order_relaxed)) return;
  if (was_asked_for_ahead_.exchange(true, std::memory_order_relaxed) || runtime::usable_cores() < 2) return;
  {
    std::lock_guard lock(lookup_mutex());
    if (executable_) return;
  }
  ProgramTable::touch(*this);
  if (auto ahead = engine::CompilationAhead::begin(*program_)) all_programs.begun(*this, std::move(ahead));
}

/// By output: whether it is floating, and a gradient of it gets to a wanted input.
std::vector<bool> CallProgram::differentiable(const std::vector<bool>& wanted) const {
  std::vector<bool> found = gradient_paths().reaching(wanted);
  for (size_t i = 0; i < found.size(); ++i)
    found[i] = found[i] && is_floating(program_->type(program_->body.results[i]).dtype);
  return found;
}

const Derivative& CallProgram::derivative(const std::vector<bool>& wanted) const {
  {
    std::lock_guard lock(lookup_mutex());
    if (auto found = derivatives_.find(wanted); found != derivatives_.end()) return *found->second;
  }
  passes::Vjp vjp = passes::vjp(*program_, wanted);
  ProgramRef forward = intern(std::move(vjp.forward));
  if (forward->text() == text_) forward = nullptr;
  auto derived = std::make_unique<const Derivative>(
      Derivative{std::move(forward), intern(std::move(vjp.backward)), std::move(vjp.saved_inputs),
                 std::move(vjp.saved_outputs), vjp.residuals, differentiable(wanted)});
  std::lock_guard lock(lookup_mutex());
  return *derivatives_.try_emplace(wanted, std::move(derived)).first->second;
}

const passes::GradientPaths& CallProgram::gradient_paths() const {
  {
    std::lock_guard lock(lookup_mutex());
    if (gradient_paths_) return *gradient_paths_;
  }
  auto paths = std::make_unique<const passes::GradientPaths>(*program_);
  std::lock_guard lock(lookup_mutex());
  if (!gradient_paths_) gradient_paths_ = std::move(paths);
  return *gradient_paths_;
}

ProgramRef CallProgram::derive(Derived& known, const std::vector<bool>& inputs,
                               ir::Program (*pass)(const ir::Program&, const std::vector<bool>&)) const {
  {
    std::lock_guard lock(lookup_mutex());
    if (auto found = known.find(inputs); found != known.end()) return found->second;
  }
  ProgramRef derived = intern(pass(*program_, inputs));
  std::lock_guard lock(lookup_mutex());
  return known.try_emplace(inputs, std::move(derived)).first->second;
}

namespace {

/// The program with readers of its floating inputs that nobody reads, so that a gradient of any result counts as
/// getting to all of them (passes/differentiation/gradient_paths.h). Derivatives compare and choose where autograd's
/// own second derivatives are zeros, as that of relu.
ir::Program with_all_paths(ir::Program program) {
  for (const ir::ValueId input : program.body.args)
    if (is_floating(program.type(input).dtype)) passes::add_path(program, input);
  return program;
}

ir::Program vjp_with_paths(const ir::Program& program, const std::vector<bool>& wanted) {
  return with_all_paths(passes::vjp_of_primals(program, wanted));
}

ir::Program jvp_with_paths(const ir::Program& program, const std::vector<bool>& varied) {
  return with_all_paths(passes::jvp_of_primals(program, varied));
}

}  // namespace

ProgramRef CallProgram::of_primals(const std::vector<bool>& wanted) const {
  return derive(of_primals_, wanted, vjp_with_paths);
}

ProgramRef CallProgram::of_tangents(const std::vector<bool>& varied) const {
  return derive(of_tangents_, varied, jvp_with_paths);
}

ProgramRef CallProgram::without_cotangents(const std::vector<bool>& absent) const {
  return derive(without_cotangents_, absent, passes::without_cotangents);
}

}  // namespace weft::torch_operator
