#include "device/run/programs.h"

#include <ATen/ops/scalar_tensor.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <ranges>

#include "base/error.h"
#include "base/settings.h"
#include "device/run/interruption.h"
#include "device/run/outlines.h"
#include "device/run/replay.h"
#include "device/run/watched_runs.h"
#include "importer/region.h"
#include "ir/verifier.h"
#include "override/state.h"
#include "passes/pass_runner.h"
#include "programs/generaliser.h"
#include "programs/record_table.h"
#include "record/recording.h"

namespace weft::device {

using record::Record;
using record::SizeFit;
using record::Template;
using torch_operator::ProgramRef;

namespace {

/// What is known about batches with the same record.
struct KnownBatch {
  std::shared_ptr<Template> pattern;
  Record record;  ///< of the first such batch; records of batches with other sizes are compared with it
  std::vector<Batch::LeafSize> leaf_sizes;
  int64_t seen = 0;
  ProgramRef program = {};                 ///< null until it is compiled
  bool is_refused = false;                 ///< there is no program for it
  std::vector<at::Tensor> constants = {};  ///< inputs that are the same at each call
};

using Table = programs::RecordTable<KnownBatch>;

/// Used under run_mutex().
struct Programs {
  Table table{{static_cast<size_t>(settings().captured)}};
  Outlines<Table::Entry> outlines;
  Batch::Outline outline;  ///< of the batch at hand
  int64_t compile_at = 2;
  Decompose decompose;
  ProgramCounts counts;
};

/// Made at load (base/fork.h), never destroyed.
Programs* programs = new Programs();

Table::Reference remember(KnownBatch known) {
  ++programs->counts.records;
  const size_t bytes = known.pattern->bytes() + known.record.bytes();
  const uint64_t structure = known.pattern->structure();
  auto entry = std::make_shared<Table::Entry>(Table::Entry{structure, {known.pattern}, std::move(known), bytes});
  static_cast<void>(programs->table.put(entry));
  return entry;
}

/// The entry for the record; null if there is none. If the record differs from a known one in floats only, adds a
/// pattern with those floats as inputs.
Table::Reference known_of(const Record& record) {
  const Record* const records[] = {&record};
  if (auto found = programs->table.find(record.structure(), records, [](const auto&) { return true; })) return found;
  for (const auto& entry : programs->table.alike(record.structure())) {
    const KnownBatch& known = entry->value;
    const auto numbers = known.pattern->differing_numbers(record);
    if (numbers.empty() || known.is_refused) continue;
    KnownBatch wider{std::make_shared<Template>(*known.pattern), known.record, known.leaf_sizes, known.seen};
    for (size_t word : numbers) wider.pattern->free_number(word);
    return remember(std::move(wider));
  }
  return nullptr;
}

/// For these words of the batch's record, which are numbers: the places of the numbers in the batch.
std::vector<NumberPlace> numbers_at(const std::vector<size_t>& words, const Batch& batch, const Record& record) {
  if (words.empty()) return {};
  std::vector<size_t> all;
  for (size_t i = 0; i < record.kinds().size(); ++i)
    if (record.kinds()[i] == Record::Kind::kNumber) all.push_back(i);
  const std::vector<WordPlace> places = places_of_words(batch, all);
  std::vector<size_t> counts(batch.nodes().size());
  std::map<size_t, NumberPlace> by_word;
  for (const WordPlace& place : places) by_word[place.word] = {*place.node, counts[*place.node]++, 0};
  std::vector<NumberPlace> numbers;
  for (size_t word : words) {
    numbers.push_back(by_word.at(word));
    numbers.back().count = counts[numbers.back().node];
  }
  return numbers;
}

/// The program with unrolled Python loops, which were recorded step by step, rolled into scans. Its outputs take the
/// memory of leaves.
ir::Program rolled(ir::Program program, const Batch& batch) {
  constexpr std::string_view kPasses[] = {"drop_derivatives", "cse", "dce", "roll"};
  passes::run_passes(program, kPasses);
  program.donations = batch.donations();
  ir::verify(program);
  return program;
}

void compile(KnownBatch& entry, const Batch& batch, const Record& record, const Samples* samples = nullptr) {
  ReplayedProgram made =
      replayed_program(batch, numbers_at(entry.pattern->free(), batch, record), programs->decompose, samples);
  entry.program = torch_operator::intern(rolled(std::move(made.program), batch));
  entry.constants = std::move(made.constants);
  entry.program->executable();
  // Running operations one by one has left the heap full of holes, and the program's own memory won't fill them.
  malloc_trim(0);
}

void refuse(KnownBatch& entry, const std::string& reason) {
  entry.program = nullptr;
  entry.is_refused = true;
  override_kernels::report_fallback("device weft", reason);
}

void compile_or_refuse(KnownBatch& entry, const Batch& batch, const Record& record) {
  try {
    compile(entry, batch, record);
    ++programs->counts.programs;
  } catch (const c10::Error& error) {
    refuse(entry, error.what_without_backtrace());
  } catch (const std::exception& error) {
    refuse(entry, error.what());
  }
}

/// How two records differ in the sizes of leaves: a symbol for each pair of values.
struct Difference {
  programs::SampleSizes symbols;                 ///< by symbol: its value in each record
  std::vector<std::pair<size_t, size_t>> words;  ///< (word, symbol) for each differing word
  bool is_of_features = false;  ///< the sizes look like numbers of features, for which constant sizes make faster code
};

Difference difference(const KnownBatch& known, const Record& record, const Batch& batch) {
  Difference found;
  for (const auto& size : known.leaf_sizes) {
    const std::pair pair(known.record.words()[size.word], record.words()[size.word]);
    if (pair.first == pair.second) continue;
    const auto symbol = std::ranges::find(found.symbols, pair);
    found.words.emplace_back(size.word, static_cast<size_t>(symbol - found.symbols.begin()));
    if (symbol == found.symbols.end()) found.symbols.push_back(pair);
    const Value& leaf = *batch.leaves()[size.leaf];
    found.is_of_features |= programs::is_of_features(size.dim, leaf.sizes.size(), at::isFloatingType(leaf.dtype));
  }
  return found;
}

/// A pattern that covers the sizes of both batches, with its program. `guess`: how the two records suggest that sizes
/// depend on each other. The operations are repeated at sample sizes, which must confirm the guess.
std::optional<KnownBatch> widened_at(const KnownBatch& known, const Batch& batch, const Batch::Told& told,
                                     const Template& guess, const programs::Symbols& symbols) try {
  std::vector<int64_t> values[2];
  for (const auto& [first, second] : symbols.samples()) {
    values[0].push_back(first);
    values[1].push_back(second);
  }
  const auto one = guess.words(values[0]), two = guess.words(values[1]);
  if (!one || !two) return std::nullopt;
  SizeFit fit = symbols.fit();
  KnownBatch wider{
      std::make_shared<Template>(told.record.with_sizes(*one), told.record.with_sizes(*two), &told.record, fit),
      Record(),
      {}};
  for (size_t word : guess.free()) wider.pattern->free_number(word);
  if (!wider.pattern->matches(told.record) || !wider.pattern->matches(known.record)) return std::nullopt;
  const Samples sampled{*one, *two, fit};
  compile(wider, batch, told.record, &sampled);
  ++programs->counts.programs;
  return wider;
} catch (...) {
  return std::nullopt;  // else a program for each size
}

std::optional<KnownBatch> widened(const KnownBatch& known, const Batch& batch, const Batch::Told& told,
                                  const Difference& found, programs::Attempts& attempts) try {
  SizeFit fit(found.symbols, {}, true);
  const Template guess(known.record, told.record, nullptr, fit);
  std::vector<programs::SizeKey> keys;
  for (const auto& [before, now] : found.symbols) keys.push_back({now, "was " + std::to_string(before)});
  std::optional<KnownBatch> wider;
  using Outcome = programs::Rerun::Outcome;
  const Outcome outcome = programs::widen(keys, found.symbols, attempts, [&](const programs::Symbols& symbols) {
    wider = widened_at(known, batch, told, guess, symbols);
    if (!wider) return Outcome::kFailed;
    // Weights of a constant size have kernels of their own.
    const bool is_slow = found.is_of_features && importer::has_symbolic_weights(wider->program->program());
    return is_slow ? Outcome::kUnwanted : Outcome::kMade;
  });
  if (outcome != Outcome::kMade) return std::nullopt;
  return wider;
} catch (...) {  // the records suggest nothing
  ++attempts.failed;
  return std::nullopt;
}

/// Adds an entry. It serves all sizes if the batch differs from a known one in sizes only. A failed attempt at that
/// isn't repeated at each further size.
Table::Reference new_entry(const Batch& batch, const Batch::Told& told) {
  const uint64_t structure = told.record.structure();
  for (const auto& each : programs->table.alike(structure)) {
    const KnownBatch& known = each->value;
    if (known.leaf_sizes.empty() || known.is_refused || known.record.kinds() != told.record.kinds()) continue;
    const Difference found = difference(known, told.record, batch);
    if (found.symbols.empty()) continue;
    const auto attempts = programs->table.attempts(structure, found.words);
    if (!attempts->are_worth_it(found.is_of_features)) continue;
    ++programs->counts.widenings;
    if (auto wider = widened(known, batch, told, found, *attempts)) return remember(*std::move(wider));
  }
  return remember({programs::exact_template(told.record), told.record, told.leaf_sizes});
}

}  // namespace

namespace {

/// Tells whoever watches runs how an unknown record differs from a known one.
void tell_new(WatchedRun* run, const Batch& batch, const Record& record) {
  if (run == nullptr) return;
  const Record* most_like = nullptr;
  const auto alike = programs->table.alike(record.structure());
  for (const auto& each : alike)
    if (each->value.record.kinds() == record.kinds()) most_like = &each->value.record;
  tell_difference(*run, batch, record, most_like);
}

/// The entry of the batch's record, compiled if the record has been seen often enough.
Table::Reference entry_of(const Batch& batch, const Batch::Told& told) {
  const Record& record = told.record;
  using Clock = std::chrono::steady_clock;
  Table::Reference found = known_of(record);
  std::optional<InterruptionsWait> wait;
  const bool is_there = found != nullptr && found->value.program != nullptr;
  if (!is_there) wait.emplace();
  WatchedRun* run = watched_run();
  if (found == nullptr) tell_new(run, batch, record);
  const Clock::time_point begin = is_there ? Clock::time_point() : Clock::now();
  if (found == nullptr) found = new_entry(batch, told);
  KnownBatch& entry = found->value;
  ++entry.seen;
  if (entry.program == nullptr && !entry.is_refused && entry.seen >= programs->compile_at)
    compile_or_refuse(entry, batch, record);
  if (run != nullptr) {
    run->structure = record.structure();
    run->found = entry.is_refused           ? Found::kRefused
                 : is_there                 ? Found::kKnown
                 : entry.program != nullptr ? Found::kCompiled
                                            : Found::kNew;
    if (!is_there) run->compiling = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return found;
}

BatchProgram program_with(const KnownBatch& known, const Batch& batch, const std::vector<double>& free) {
  ++programs->counts.compiled_batches;
  BatchProgram program{known.program, {}};
  program.inputs.reserve(batch.leaves().size() + free.size() + known.constants.size());
  for (const ValueRef& leaf : batch.leaves()) program.inputs.push_back(leaf->tensor);
  for (const double number : free) program.inputs.push_back(at::scalar_tensor(number, at::kDouble));
  program.inputs.insert(program.inputs.end(), known.constants.begin(), known.constants.end());
  return program;
}

/// The program of a batch that has been run before.
std::optional<BatchProgram> program_of_outline(const Batch& batch, const Batch::Outline& outline) {
  auto found = programs->outlines.find(outline);
  if (!found || found->entry->value.program == nullptr) return std::nullopt;
  KnownBatch& known = found->entry->value;
  ++known.seen;
  programs->table.used(*found->entry);
  if (WatchedRun* run = watched_run()) {
    run->structure = found->entry->structure;
    run->found = Found::kKnown;
  }
  return program_with(known, batch, found->free);
}

void remember_outline(const Batch::Outline& outline, const Record& record, const Table::Reference& entry) {
  std::vector<size_t> ordinals(record.kinds().size());  // by word: how many numbers stand before it
  size_t count = 0;
  for (size_t i = 0; i < ordinals.size(); ++i) {
    ordinals[i] = count;
    if (record.kinds()[i] == Record::Kind::kNumber) ++count;
  }
  if (count != outline.numbers.size()) return;
  std::vector<size_t> free;
  for (const size_t word : entry->value.pattern->free()) free.push_back(ordinals[word]);
  programs->outlines.put(outline, entry, std::move(free));
}

}  // namespace

std::optional<BatchProgram> find_program(const Batch& batch) {
  const Batch::Outline& outline = programs->outline;
  const bool has_outline = batch.tell(programs->outline);
  if (has_outline)
    if (auto program = program_of_outline(batch, outline)) return program;
  std::optional<Batch::Told> told;
  try {
    told = batch.record();
  } catch (const record::UnsupportedError& error) {
    override_kernels::report_fallback("device weft", error.what());
    return std::nullopt;
  }
  const Table::Reference entry = entry_of(batch, *told);
  if (entry->value.program == nullptr) {
    ++programs->counts.plain_batches;
    return std::nullopt;
  }
  if (has_outline) remember_outline(outline, told->record, entry);
  return program_with(entry->value, batch, entry->value.pattern->free_numbers(told->record));
}

void forget_programs() {
  auto* fresh = new Programs();  // the old object is left unchanged
  fresh->compile_at = programs->compile_at;
  fresh->decompose = programs->decompose;
  programs = fresh;
}

void set_compile_at(int64_t sight) { programs->compile_at = sight; }
void set_decompose(Decompose decompose) { programs->decompose = std::move(decompose); }

ProgramCounts program_counts() {
  ProgramCounts counts = programs->counts;
  counts.kept = static_cast<int64_t>(programs->table.size());
  return counts;
}

}  // namespace weft::device
