#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace weft::runtime {

/// A size: factor times the values of symbols (indices into Plan::symbols).
struct DimExpr {
  int64_t factor = 1;
  std::vector<int64_t> symbols;

  /// User's error where it exceeds 2^63.
  int64_t evaluate(const std::vector<int64_t>& values) const;
};

/// The sum of the terms where it is only to be compared, as a cost: 2^63 - 1 stands for all that is more.
int64_t estimate(const std::vector<DimExpr>& terms, const std::vector<int64_t>& values);

enum class Storage : uint8_t {
  kInput,
  kOutput,
  kArena,
  kStep  ///< a part of another buffer, or a whole one, which the loop around its stages sets for each step
};

/// Memory that stages read and write.
struct BufferPlan {
  std::string name;
  Storage storage = Storage::kArena;
  int64_t index = 0;  ///< which input or output
  int64_t element_size = 4;
  DimExpr elements;
  int64_t copies = 1;           ///< consecutive instances, each padded to a cache line ...
  int64_t copies_a_member = 0;  ///< ... and so many more for each further member that shares the stage's columns
  int64_t first = 0, last = 0;  ///< the stages (StagePlan::index) between which it lives, both included; an output is
                                ///< written from `first`
};

/// Machine code of a stage: does rows lo..hi-1 and, of the columns, share `unit` of `units`.
using StageFunction = void (*)(void* const* buffers, const int64_t* dims, void* barrier, int64_t lo, int64_t hi,
                               int64_t unit, int64_t units);

struct Plan;

/// What a call stage sees: one member's share of it.
struct CallContext {
  const Plan& plan;
  void* const* buffers;
  const std::vector<int64_t>& symbols;
  int64_t thread, threads;
};
/// Returns false when the inputs are bad (an index out of range): the message goes to `error`, of one thread at a time.
using CallFunction = std::function<bool(const CallContext& context, std::string& error)>;

/// The work of one step of a scan, as Plan::work: sums of terms.
struct StepWork {
  std::vector<DimExpr> products;    ///< of products whose columns can be shared
  std::vector<DimExpr> split;       ///< of other ops whose columns can be
  std::vector<DimExpr> replicated;  ///< that every member does who shares columns
  int64_t weight_bytes = 0;         ///< that the products read
  int64_t barriers = 0;             ///< when columns are shared
};

struct StagePlan;

/// Stages within a stage: the steps of a loop, each of which first sets the buffers of the step; the choices of a cond;
/// the condition and body of a while, whose steps set the buffers of carries as a loop's do.
struct ControlPlan {
  /// An x or a y of one step: `buffer` is the step's part of `stack`.
  struct Slice {
    int64_t buffer, stack;
  };
  /// `arg` is `init` in the first step, then what was `out` in the step before; `out` is one of the two instances of
  /// `work`, and in a loop's last step `result`. (A while doesn't know it: it copies.)
  struct Carry {
    int64_t arg, out, init, result, work;
  };
  std::vector<Slice> slices;
  std::vector<Carry> carries;
  bool reverse = false;  ///< slices are taken from the last to the first
  /// Of a loop, its step; of a cond, what it does when its predicate is true and when not; of a while, what makes its
  /// predicate, and its body.
  std::vector<std::vector<StagePlan>> regions;
  int64_t predicate = -1;     ///< the buffer, one bool
  std::vector<DimExpr> work;  ///< of one step, as Plan::work
};

struct StagePlan {
  enum class Kind : uint8_t { kRows, kScan, kCall, kLoop, kCond, kWhile };
  Kind kind = Kind::kRows;
  int64_t index = 0;   ///< counted over all stages of the plan, those within a stage following it
  std::string symbol;  ///< of the machine code; of a call, what it does
  StageFunction function = nullptr;
  CallFunction call;
  bool outside = false;       ///< a call that must be made by the caller's thread while the team is idle, or one within
  DimExpr rows;               ///< rows of the domain, or of the batch of a scan
  bool splits_rows = true;    ///< false: a scan whose rows depend on each other
  int64_t row_block = 1;      ///< rows are dealt out in multiples of this
  DimExpr length;             ///< steps of a scan or loop
  int64_t batch_sizes = -1;   ///< of a ragged scan: the buffer with the rows of each step, i64[length], ...
  DimExpr packed;             ///< ... and their sum
  int64_t column_shares = 1;  ///< the most threads that columns can be shared by; 1: they can't
  StepWork step;              ///< of a scan
  /// Of a scan or loop of no steps: results that are copies of the initial carries (from, to).
  std::vector<std::pair<int64_t, int64_t>> carry_copies;
  ControlPlan control;
};

/// A program as the executable runs it: buffers, and stages one after the other.
struct Plan {
  std::vector<std::string> symbols;
  std::vector<DimExpr> dims;  ///< what machine code finds in `dims`, in order
  std::vector<BufferPlan> buffers;
  std::vector<StagePlan> stages;
  int64_t stage_count = 0;    ///< with those within stages
  std::vector<DimExpr> work;  ///< multiply-adds, or as much work, of a call: the sum of these
};

/// Bytes of one instance of a buffer, padded to a cache line.
int64_t instance_bytes(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values);

/// How many instances of a buffer there are, with `members` as ArenaPlanner::lay_out takes them.
int64_t instances(const BufferPlan& buffer, const std::vector<int64_t>& members);

}  // namespace weft::runtime
