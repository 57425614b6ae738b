#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/calls/kernel_call.h"
#include "runtime/size.h"

namespace weft::runtime {

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

  bool operator==(const BufferPlan&) const = default;
  static constexpr auto fields() {
    using Self = BufferPlan;
    return std::tuple{Field{"name", &Self::name},
                      Field{"storage", &Self::storage},
                      Field{"index", &Self::index},
                      Field{"element_size", &Self::element_size},
                      Field{"elements", &Self::elements},
                      Field{"copies", &Self::copies},
                      Field{"copies_a_member", &Self::copies_a_member},
                      Field{"first", &Self::first},
                      Field{"last", &Self::last}};
  }
};

/// Machine code of a stage: does rows lo..hi-1 and, of the columns, share `unit` of `units`.
using StageFunction = void (*)(void* const* buffers, const int64_t* dims, void* barrier, int64_t lo, int64_t hi,
                               int64_t unit, int64_t units);

/// What the stages run that is no plain data, by StagePlan::index. Null or empty where a stage needs none.
struct StageCode {
  std::vector<StageFunction> functions;  ///< of kRows and kScan
  std::vector<CallFunction> callbacks;   ///< of a CallbackCall
};

/// The work of one step of a scan, as Plan::work: sums of terms.
struct StepWork {
  std::vector<DimExpr> products;    ///< of products whose columns can be shared
  std::vector<DimExpr> split;       ///< of other ops whose columns can be
  std::vector<DimExpr> replicated;  ///< that every member does who shares columns
  int64_t weight_bytes = 0;         ///< that the products read
  int64_t barriers = 0;             ///< when columns are shared

  bool operator==(const StepWork&) const = default;
  static constexpr auto fields() {
    using Self = StepWork;
    return std::tuple{Field{"products", &Self::products}, Field{"split", &Self::split},
                      Field{"replicated", &Self::replicated}, Field{"weight_bytes", &Self::weight_bytes},
                      Field{"barriers", &Self::barriers}};
  }
};

struct StagePlan;

/// Stages within a stage: the steps of a loop, each of which first sets the buffers of the step; the choices of a cond;
/// the condition and body of a while, whose steps set the buffers of carries as a loop's do.
struct ControlPlan {
  /// An x or a y of one step: `buffer` is the step's part of `stack`.
  struct Slice {
    int64_t buffer = 0, stack = 0;

    bool operator==(const Slice&) const = default;
    static constexpr auto fields() {
      return std::tuple{Field{"buffer", &Slice::buffer}, Field{"stack", &Slice::stack}};
    }
  };
  /// `arg` is `init` in the first step, then what was `out` in the step before; `out` is one of the two instances of
  /// `work`, and in a loop's last step `result`. (A while doesn't know it: it copies.)
  struct Carry {
    int64_t arg = 0, out = 0, init = 0, result = 0, work = 0;

    bool operator==(const Carry&) const = default;
    static constexpr auto fields() {
      return std::tuple{Field{"arg", &Carry::arg}, Field{"out", &Carry::out}, Field{"init", &Carry::init},
                        Field{"result", &Carry::result}, Field{"work", &Carry::work}};
    }
  };
  std::vector<Slice> slices;
  std::vector<Carry> carries;
  bool reverse = false;  ///< slices are taken from the last to the first
  /// Of a loop, its step; of a cond, what it does when its predicate is true and when not; of a while, what makes its
  /// predicate, and its body.
  std::vector<std::vector<StagePlan>> regions;
  int64_t predicate = -1;     ///< the buffer, one bool
  std::vector<DimExpr> work;  ///< of one step, as Plan::work

  bool operator==(const ControlPlan& other) const;
  static constexpr auto fields() {
    using Self = ControlPlan;
    return std::tuple{Field{"slices", &Self::slices},       Field{"carries", &Self::carries},
                      Field{"reverse", &Self::reverse},     Field{"regions", &Self::regions},
                      Field{"predicate", &Self::predicate}, Field{"work", &Self::work}};
  }
};

struct StagePlan {
  enum class Kind : uint8_t { kRows, kScan, kCall, kLoop, kCond, kWhile };
  Kind kind = Kind::kRows;
  int64_t index = 0;          ///< counted over all stages of the plan, those within a stage following it
  std::string symbol;         ///< of the machine code; of a call, the op
  KernelCall call;            ///< of kCall
  bool outside = false;       ///< a call that must be made by the caller's thread while the team is idle, or one within
  DimExpr rows;               ///< rows of the domain, or of the batch of a scan
  bool splits_rows = true;    ///< false: a scan whose rows depend on each other
  int64_t row_block = 1;      ///< rows are dealt out in multiples of this
  DimExpr length;             ///< steps of a scan or loop
  int64_t batch_sizes = -1;   ///< of a ragged scan: the buffer with the rows of each step, i64[length], ...
  DimExpr packed;             ///< ... and their sum
  int64_t column_shares = 1;  ///< the most threads that columns can be shared by; 1: they can't
  StepWork step;              ///< of a scan
  /// Of a scan or loop of no steps: results that are copies of the initial carries.
  struct CarryCopy {
    int64_t from = 0, to = 0;

    bool operator==(const CarryCopy&) const = default;
    static constexpr auto fields() { return std::tuple{Field{"from", &CarryCopy::from}, Field{"to", &CarryCopy::to}}; }
  };
  std::vector<CarryCopy> carry_copies;
  ControlPlan control;

  bool operator==(const StagePlan&) const = default;
  static constexpr auto fields() {
    using Self = StagePlan;
    return std::tuple{Field{"kind", &Self::kind},
                      Field{"index", &Self::index},
                      Field{"symbol", &Self::symbol},
                      Field{"call", &Self::call},
                      Field{"outside", &Self::outside},
                      Field{"rows", &Self::rows},
                      Field{"splits_rows", &Self::splits_rows},
                      Field{"row_block", &Self::row_block},
                      Field{"length", &Self::length},
                      Field{"batch_sizes", &Self::batch_sizes},
                      Field{"packed", &Self::packed},
                      Field{"column_shares", &Self::column_shares},
                      Field{"step", &Self::step},
                      Field{"carry_copies", &Self::carry_copies},
                      Field{"control", &Self::control}};
  }
};

/// A program as the executable runs it: buffers, and stages one after the other. Plain data: it can be printed,
/// compared and written to a file (plan_text.h), and needs only a StageCode to run.
struct Plan {
  std::vector<std::string> symbols;
  std::vector<DimExpr> dims;  ///< what machine code finds in `dims`, in order
  std::vector<BufferPlan> buffers;
  std::vector<StagePlan> stages;
  int64_t stage_count = 0;    ///< with those within stages
  std::vector<DimExpr> work;  ///< multiply-adds, or as much work, of a call: the sum of these

  bool operator==(const Plan&) const = default;
  static constexpr auto fields() {
    using Self = Plan;
    return std::tuple{Field{"symbols", &Self::symbols},         Field{"dims", &Self::dims},
                      Field{"buffers", &Self::buffers},         Field{"stages", &Self::stages},
                      Field{"stage_count", &Self::stage_count}, Field{"work", &Self::work}};
  }
};

/// Where each arena buffer lies, so that two that live at the same time never overlap: in the arena, or, with
/// `uses_outputs`, in the memory of an output that is written only after the buffer's last stage.
struct ArenaLayout {
  std::vector<int64_t> offsets;  ///< one a buffer, in bytes; -1 for those that have no memory of the arena's
  std::vector<int64_t> hosts;    ///< the output's buffer that it lies in; -1: in the arena
  int64_t bytes = 0;             ///< of the arena
};
/// First fit in order of size; deterministic. Outputs must be aligned to 64 bytes if they are to be used. `members`:
/// how many share the columns of each stage (by StagePlan::index); empty where none are shared.
ArenaLayout lay_out(const Plan& plan, const std::vector<int64_t>& symbol_values, bool uses_outputs,
                    const std::vector<int64_t>& members = {});

/// Bytes of one instance of a buffer, padded to a cache line.
int64_t instance_bytes(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values);

/// How many instances of a buffer there are, with `members` as lay_out takes them.
int64_t instances(const BufferPlan& buffer, const std::vector<int64_t>& members);

/// A line a buffer (name, bytes, offset, stages), then `peak N bytes`: of the arena.
std::string describe(const Plan& plan, const std::vector<int64_t>& symbol_values);

}  // namespace weft::runtime
