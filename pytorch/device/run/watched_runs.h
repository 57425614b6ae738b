#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/graph/batch.h"

namespace weft::device {

/// A line of the user's code; empty where no such code is at work.
struct Place {
  std::string file;
  int line = 0;
  std::string function;
};
/// Finds the place. Called with the GIL.
using FindLine = std::function<Place()>;
/// Called with the GIL when a run is over: with its place, and how many operations ran.
using Ended = std::function<void(const Place& place, size_t operations)>;

/// The outcome of looking up a batch's record.
enum class Found : uint8_t {
  kNew,       ///< seen for the first time: ran one by one
  kCompiled,  ///< compiled now
  kKnown,     ///< its program was there
  kRefused    ///< has no program: runs one by one each time
};

/// One run of pending operations.
struct WatchedRun {
  Place place;
  std::string asked_by;  ///< the operation that asked for values; "sync", or "long" for a record that grew too long
  size_t operations = 0, results = 0;
  double begin = 0, end = 0;  ///< seconds of the steady clock
  double compiling = 0;       ///< seconds spent finding its program, if it wasn't known
  Found found = Found::kKnown;
  uint64_t structure = 0;  ///< equal for records that differ in sizes and numbers only
  std::string differs;     ///< how an unknown record differs from the known one most like it
  Place differs_at;        ///< where the differing operation was recorded
};

/// Watches runs from now on, each with its place. With `operations`, recorded operations get places too, which costs
/// some microseconds each. A null `find_line` ends it. `ended` may be null.
void watch_runs(FindLine find_line, bool operations, Ended ended);
/// The runs since the last call of this function in which something ran. At most 100,000 are kept.
std::vector<WatchedRun> take_watched_runs();

/// Names a reader of values: while the object lives, this thread's runs are attributed to this reader.
class Asking {
 public:
  explicit Asking(std::string_view name);
  ~Asking();
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  std::string_view before_;
};

/// Watches one run of what is pending, from its start to its end. Does nothing where nobody watches.
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

/// The calling thread's current run, to which details can be added; null where nobody watches.
WatchedRun* watched_run();
/// Remembers where an operation was recorded, while operations are watched.
void note_operation(const Node& node);
/// Notes in the run how its unknown record differs from `most_like`, a record of the same structure, or null if there
/// is no such record. Called before the batch runs.
void tell_difference(WatchedRun& run, const Batch& batch, const record::Record& record,
                     const record::Record* most_like);

}  // namespace weft::device
