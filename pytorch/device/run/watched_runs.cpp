#include "device/run/watched_runs.h"

#include <chrono>
#include <map>
#include <mutex>

#include "base/fork.h"
#include "device/kernels/operators.h"
#include "device/with_python.h"

namespace weft::device {
namespace {

constexpr size_t kMostRuns = 100'000, kMostOperations = 1 << 17, kMostPlaces = 256;

struct Watch {
  std::mutex mutex;
  std::vector<WatchedRun> runs;
  std::map<uint64_t, Place> operations;  ///< by serial number: where operations that haven't run were recorded
  /// By the place and cause of a run: the operations of the last batch that ran so.
  std::map<std::pair<int, std::string>, std::vector<const Operator*>> last;
  FindLine find_line;
  Ended ended;
  Watch() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h), never destroyed.
Watch& watch = *new Watch();
std::atomic<bool> is_watched{false}, has_operations{false};

thread_local std::string_view asking;
thread_local WatchedRun* current = nullptr;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// The calling thread's place in its Python code.
Place line() {
  FindLine find_line;
  {
    std::lock_guard lock(watch.mutex);
    find_line = watch.find_line;
  }
  Place found;
  if (find_line) with_python([&] { found = find_line(); });
  return found;
}

std::string name_of(const Operator& op) { return op.schema().name(); }

/// A changed word of a record, described for people: which size of an input, or which argument, it is.
std::string in_words(const Batch& batch, const WordPlace& word, int64_t was, int64_t is) {
  const std::string op = word.node ? name_of(batch.nodes()[*word.node]->op()) : "the results";
  const auto from_to = [&](const std::string& what) {
    if (word.is_number) return what + " of " + op + " is another number";
    return what + " of " + op + " is " + std::to_string(is) + ", was " + std::to_string(was);
  };
  if (word.leaf) return from_to("dim " + std::to_string(word.element) + " of an input");
  if (!word.argument) return from_to("a size");
  return from_to("the argument " + batch.nodes()[*word.node]->op().schema().arguments()[*word.argument].name());
}

/// A word in which two records of one structure differ: the first word that is a leaf's size, else the first word in an
/// argument. Sizes of results follow from leaves and arguments.
std::optional<WordPlace> first_difference(const Batch& batch, const std::vector<int64_t>& words,
                                          const std::vector<int64_t>& known) {
  std::vector<size_t> different;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] != known[i]) different.push_back(i);
  const auto places = places_of_words(batch, different);
  for (const auto& each : places)
    if (each.leaf) return each;
  for (const auto& each : places)
    if (each.argument) return each;
  return places.empty() ? std::nullopt : std::optional(places.front());
}

}  // namespace

void watch_runs(FindLine find_line, bool operations, Ended ended) {
  const bool watches = find_line != nullptr;
  FindLine before;  // freed after the lock is released
  Ended ended_before;
  {
    std::lock_guard lock(watch.mutex);
    before = std::exchange(watch.find_line, std::move(find_line));
    ended_before = std::exchange(watch.ended, std::move(ended));
    watch.operations.clear();
    watch.last.clear();
  }
  has_operations = watches && operations;
  is_watched = watches;
}

std::vector<WatchedRun> take_watched_runs() {
  std::lock_guard lock(watch.mutex);
  return std::exchange(watch.runs, {});
}

Asking::Asking(std::string_view name) : before_(std::exchange(asking, name)) {}
Asking::~Asking() { asking = before_; }

Watching::Watching() : before_(current) {
  if (!is_watched.load(std::memory_order_relaxed)) return;
  run_.emplace();
  run_->place = line();
  run_->asked_by = asking.empty() ? "sync" : asking;
  run_->begin = now();
  current = &*run_;
}

Watching::~Watching() {
  if (!run_) return;
  current = before_;
  run_->end = now();
  Ended ended;
  {
    std::lock_guard lock(watch.mutex);
    ended = watch.ended;
    if (run_->operations > 0 && watch.runs.size() < kMostRuns) watch.runs.push_back(*run_);
  }
  if (ended) with_python([&] { ended(run_->place, run_->operations); });
}

void Watching::take(const Batch& batch) {
  if (!run_) return;
  run_->operations = batch.nodes().size();
  run_->results = batch.outputs().size();
}

WatchedRun* watched_run() { return current; }

void note_operation(const Node& node) {
  if (!has_operations.load(std::memory_order_relaxed)) return;
  Place place = line();
  std::lock_guard lock(watch.mutex);
  if (watch.operations.size() >= kMostOperations) watch.operations.erase(watch.operations.begin());
  watch.operations[node.serial] = std::move(place);
}

void tell_difference(WatchedRun& run, const Batch& batch, const record::Record& record,
                     const record::Record* most_like) {
  run.structure = record.structure();
  std::vector<const Operator*> ops;
  for (const NodeRef& node : batch.nodes()) ops.push_back(&node->op());
  const std::pair key(run.place.line, run.place.file + run.asked_by);
  std::optional<size_t> at;
  std::optional<WordPlace> word;
  if (most_like != nullptr && most_like->words().size() == record.words().size())
    word = first_difference(batch, record.words(), most_like->words());
  std::lock_guard lock(watch.mutex);
  const auto last = watch.last.find(key);
  if (word) {
    at = word->node;
    run.differs = in_words(batch, *word, most_like->words()[word->word], record.words()[word->word]);
  } else if (last != watch.last.end()) {
    const auto [mine, other] = std::ranges::mismatch(ops, last->second);
    if (mine != ops.end()) {
      at = static_cast<size_t>(mine - ops.begin());
      run.differs = name_of(**mine) + " was not there";
      if (other != last->second.end()) run.differs = name_of(**mine) + " stands where " + name_of(**other) + " stood";
    } else {
      run.differs = other == last->second.end() ? "other operands or results" : "it ends before " + name_of(**other);
    }
  }
  if (at)
    if (const auto found = watch.operations.find(batch.nodes()[*at]->serial); found != watch.operations.end())
      run.differs_at = found->second;
  if (watch.last.size() < kMostPlaces || last != watch.last.end()) watch.last[key] = std::move(ops);
}

}  // namespace weft::device
