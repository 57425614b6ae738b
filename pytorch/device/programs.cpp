#include "device/programs.h"

#include <ATen/ops/scalar_tensor.h>

#include <list>
#include <unordered_map>

#include "base/error.h"
#include "device/replay.h"
#include "ir/parser.h"
#include "override/state.h"
#include "passes/pass_runner.h"
#include "recorder/recording.h"

namespace weft::device {

using recorder::Record;
using recorder::SizeFit;
using recorder::Template;
using torch_operator::ProgramRef;

namespace {

/// Batches that did the same.
struct Entry {
  Template pattern;
  int64_t seen = 0;
  ProgramRef program;                 ///< null until it is compiled
  bool is_refused = false;            ///< there is none
  std::vector<at::Tensor> constants;  ///< inputs that are the same at each call
};

/// Bounds on what is kept.
constexpr size_t kMostEntries = 256, kMostAlike = 8;

/// Used under run_mutex().
struct Programs {
  std::list<std::pair<uint64_t, Entry>> entries;  ///< by Template::structure(); the last used first
  std::unordered_multimap<uint64_t, std::list<std::pair<uint64_t, Entry>>::iterator> by_structure;
  int64_t compile_at = 2;
  Decompose decompose;
  ProgramCounts counts;
};

/// Made at load (base/fork.h), never destroyed.
Programs* programs = new Programs();

Template exactly(const Record& record) {
  SizeFit none({}, {}, false);
  return {record, record, nullptr, none};
}

Entry& add(Entry entry) {
  const uint64_t structure = entry.pattern.structure();
  while (programs->entries.size() >= kMostEntries || programs->by_structure.count(structure) >= kMostAlike) {
    auto last = std::prev(programs->entries.end());
    if (programs->entries.size() < kMostEntries)
      while (last->first != structure) --last;
    auto [first, end] = programs->by_structure.equal_range(last->first);
    while (first->second != last) ++first;
    programs->by_structure.erase(first);
    programs->entries.erase(last);
  }
  programs->entries.emplace_front(structure, std::move(entry));
  programs->by_structure.emplace(structure, programs->entries.begin());
  return programs->entries.front().second;
}

/// The entry whose pattern the record is an instance of. One that it is but for numbers becomes such a pattern, in which
/// these are free.
Entry& entry_of(const Record& record) {
  auto [first, end] = programs->by_structure.equal_range(record.structure());
  for (auto each = first; each != end; ++each) {
    if (!each->second->second.pattern.matches(record)) continue;
    programs->entries.splice(programs->entries.begin(), programs->entries, each->second);
    return each->second->second;
  }
  for (auto each = first; each != end; ++each) {
    Entry& known = each->second->second;
    const auto numbers = known.pattern.differing_numbers(record);
    if (numbers.empty() || known.is_refused) continue;
    Entry wider{known.pattern, known.seen, nullptr, false, {}};
    for (size_t word : numbers) wider.pattern.free_number(word);
    return add(std::move(wider));
  }
  return add({exactly(record)});
}

/// By number among the record's numbers, those that are free.
std::vector<size_t> ordinals_of(const std::vector<size_t>& words, const Record& record) {
  std::vector<size_t> ordinals;
  for (size_t word : words) {
    size_t ordinal = 0;
    for (size_t i = 0; i < word; ++i) ordinal += record.kinds()[i] == Record::Kind::kNumber ? 1 : 0;
    ordinals.push_back(ordinal);
  }
  return ordinals;
}

/// Loops in Python, of which the recording has one step after the other, as scans.
ir::Program rolled(const std::string& text) {
  ir::Program program = ir::parse(text);
  constexpr std::string_view kPasses[] = {"drop_derivatives", "cse", "dce", "roll"};
  passes::run_passes(program, kPasses);
  return program;
}

void compile(Entry& entry, const Batch& batch, const Record& record) {
  try {
    ReplayedProgram made = replayed_program(batch, ordinals_of(entry.pattern.free(), record), programs->decompose);
    entry.program = torch_operator::intern(rolled(made.text));
    entry.constants = std::move(made.constants);
    entry.program->executable();
    ++programs->counts.programs;
  } catch (const std::exception& error) {
    entry.program = nullptr;
    entry.is_refused = true;
    override_kernels::report_fallback("device weft", error.what());
  }
}

}  // namespace

std::optional<BatchProgram> find_program(const Batch& batch) {
  std::optional<Record> record;
  try {
    record = batch.record();
  } catch (const recorder::UnsupportedError& error) {
    override_kernels::report_fallback("device weft", error.what());
    return std::nullopt;
  }
  Entry& entry = entry_of(*record);
  ++entry.seen;
  if (entry.program == nullptr && !entry.is_refused && entry.seen >= programs->compile_at)
    compile(entry, batch, *record);
  if (entry.program == nullptr) {
    ++programs->counts.plain_batches;
    return std::nullopt;
  }
  ++programs->counts.compiled_batches;
  BatchProgram found{entry.program, {}};
  for (const ValueRef& leaf : batch.leaves()) found.inputs.push_back(leaf->tensor);
  for (double number : entry.pattern.free_numbers(*record)) found.inputs.push_back(at::scalar_tensor(number, at::kDouble));
  found.inputs.insert(found.inputs.end(), entry.constants.begin(), entry.constants.end());
  return found;
}

void forget_programs() {
  auto* fresh = new Programs();  // the old one is left alone
  fresh->compile_at = programs->compile_at;
  fresh->decompose = programs->decompose;
  programs = fresh;
}

void set_compile_at(int64_t sight) { programs->compile_at = sight; }
void set_decompose(Decompose decompose) { programs->decompose = std::move(decompose); }

ProgramCounts program_counts() {
  ProgramCounts counts = programs->counts;
  counts.kept = static_cast<int64_t>(programs->entries.size());
  return counts;
}

}  // namespace weft::device
