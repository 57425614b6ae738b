#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/batch.h"

namespace weft::device {

/// A line of the user's; no line where none is at work.
struct Place {
  std::string file;
  int line = 0;
  std::string function;
};
/// How to find it: called with the GIL.
using FindLine = std::function<Place()>;
/// Is told of each run when it is over, with the GIL: where, and how many operations ran.
using Ended = std::function<void(const Place& place, size_t operations)>;

/// What became of a batch's record.
enum class Found : uint8_t {
  kNew,       ///< seen for the first time: ran one by one
  kCompiled,  ///< compiled now
  kKnown,     ///< its program was there
  kRefused    ///< has no program: runs one by one each time
};

/// Once that pending operations ran.
struct WatchedRun {
  Place place;
  std::string asked_by;  ///< the operation that asked for values; "sync", or "long" for a record that grew too long
  size_t operations = 0, results = 0;
  double begin = 0, end = 0;  ///< seconds of the steady clock
  double compiling = 0;       ///< seconds of finding a program, where there was none
  Found found = Found::kKnown;
  uint64_t structure = 0;  ///< equal for records that differ in sizes and numbers only
  std::string differs;     ///< of a record that was not known: in what from the one most like it
  Place differs_at;        ///< where that was recorded
};

/// From now on runs are kept, each with its place; with `operations` recorded operations have places too, which costs
/// some microseconds each. `find_line` null: no more. `ended` may be null.
void watch_runs(FindLine find_line, bool operations, Ended ended);
/// Those since the last time that this was called, in which something ran; the most that are kept are 100,000.
std::vector<WatchedRun> take_watched_runs();

/// Who asks for values while it lives: what runs meanwhile in this thread runs because of it.
class Asking {
 public:
  explicit Asking(std::string_view name);
  ~Asking();
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  std::string_view before_;
};

/// A run of what was pending, from its begin to its end. Does nothing where nobody watches.
class Watching {
 public:
  Watching();
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  void take(const Batch& batch);

 private:
  std::optional<WatchedRun> run_;
  WatchedRun* before_;
};

/// The calling thread's run, to be told more of; null where nobody watches.
WatchedRun* watched_run();
/// Remembers where an operation was recorded, while operations are watched.
void note_operation(const Node& node);
/// Says of the run how its record, which is not known, differs from another of the same structure; null if there is
/// none. Called before the batch runs.
void tell_difference(WatchedRun& run, const Batch& batch, const record::Record& record,
                     const record::Record* most_like);

}  // namespace weft::device
