#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/calls/kernel_call.h"
#include "runtime/plan/size.h"

namespace weft::runtime {

enum class Storage : uint8_t {
  kInput,
  kOutput,
  kArena,
  kStep  ///< a pointer that the surrounding loop sets at each step: to another buffer, or to a slice of one
};

/// Memory that stages read and write.
struct BufferPlan {
  std::string name;
  Storage storage = Storage::kArena;
  int64_t index = 0;   ///< which input or output
  int64_t donor = -1;  ///< of an output: the input in whose memory it lies, or -1
  int64_t element_size = 4;
  DimExpr elements;
  int64_t copies = 1;           ///< consecutive instances, each padded to a cache line
  int64_t copies_a_member = 0;  ///< further instances for each member that shares columns, beyond the first
  int64_t first = 0, last = 0;  ///< live range: from the first stage that writes it (StagePlan::index) to the last that
                                ///< reads it, both included

  bool operator==(const BufferPlan&) const = default;
  template <typename Self = BufferPlan>
  static constexpr auto fields() {
    return std::tuple{Field{"name", &Self::name},
                      Field{"storage", &Self::storage},
                      Field{"index", &Self::index},
                      Field{"donor", &Self::donor},
                      Field{"element_size", &Self::element_size},
                      Field{"elements", &Self::elements},
                      Field{"copies", &Self::copies},
                      Field{"copies_a_member", &Self::copies_a_member},
                      Field{"first", &Self::first},
                      Field{"last", &Self::last}};
  }
};

/// Machine code of a stage: computes rows lo..hi-1, and share `unit` of `units` of their columns; of a scan, in steps
/// first_step..last_step-1. A scan whose steps are run by several calls is called for all of them, in order.
///
/// A stage kRows that has a product, and a domain of three dims or more, takes the elements of the first dim as steps.
/// It computes rows lo..hi-1 of each step, counted from the step's first row. (So lo..hi-1 of step 0 can be any rows.)
/// Other stages kRows ignore the steps.
using StageFunction = void (*)(void* const* buffers, const int64_t* dims, void* barrier, int64_t lo, int64_t hi,
                               int64_t unit, int64_t units, int64_t first_step, int64_t last_step);

/// The functions of stages, by StagePlan::index. Unlike a Plan they are no plain data. Null or empty where a stage
/// needs none.
struct StageCode {
  std::vector<StageFunction> functions;  ///< of kRows and kScan
  std::vector<CallFunction> callbacks;   ///< of a CallbackCall
};

/// The work of one step of a scan, in multiply-adds; each field is a sum of terms, as Plan::work.
struct StepWork {
  std::vector<DimExpr> products;    ///< of products whose columns can be shared
  std::vector<DimExpr> split;       ///< of other ops whose columns can be shared
  std::vector<DimExpr> replicated;  ///< of ops that each member does for itself when columns are shared
  int64_t weight_bytes = 0;         ///< bytes of weights that the products read
  int64_t units = 0;                ///< columns, in vectors, of the product that is shared least evenly; 0: not known
  int64_t grain = 0;                ///< a member's columns are a multiple of this many vectors
  int64_t barriers = 0;             ///< the number of barriers when columns are shared
  std::vector<DimExpr> crossing;    ///< bytes of values that a member then reads and other members wrote

  bool operator==(const StepWork&) const = default;
  template <typename Self = StepWork>
  static constexpr auto fields() {
    return std::tuple{Field{"products", &Self::products},     Field{"split", &Self::split},
                      Field{"replicated", &Self::replicated}, Field{"weight_bytes", &Self::weight_bytes},
                      Field{"units", &Self::units},           Field{"grain", &Self::grain},
                      Field{"barriers", &Self::barriers},     Field{"crossing", &Self::crossing}};
  }
};

struct StagePlan;

/// A stage that consists of stages: a loop (a scan that runs step by step), a cond or a while. Before each step a loop
/// sets the buffers of the step's slices and carries; a while sets those of carries.
struct ControlPlan {
  /// An x or a y: at step t `buffer` points to element t of `stack`.
  struct Slice {
    int64_t buffer = 0, stack = 0;

    bool operator==(const Slice&) const = default;
    template <typename Self = Slice>
    static constexpr auto fields() {
      return std::tuple{Field{"buffer", &Self::buffer}, Field{"stack", &Self::stack}};
    }
  };
  /// `arg` points to `init` in the first step, later to the `out` of the step before. `out` points to one of the two
  /// instances of `work` in turn, in the last step of a loop to `result`. (A while doesn't know its last step: it
  /// copies.) `in_place`: `out` always points to `result`, in whose memory each step but the first finds `arg`.
  struct Carry {
    int64_t arg = 0, out = 0, init = 0, result = 0, work = 0;
    bool in_place = false;

    bool operator==(const Carry&) const = default;
    template <typename Self = Carry>
    static constexpr auto fields() {
      return std::tuple{Field{"arg", &Self::arg},       Field{"out", &Self::out},   Field{"init", &Self::init},
                        Field{"result", &Self::result}, Field{"work", &Self::work}, Field{"in_place", &Self::in_place}};
    }
  };
  std::vector<Slice> slices;
  std::vector<Carry> carries;
  bool reverse = false;  ///< slices are taken from the last to the first
  /// The stages of each region: of a loop, its step; of a cond, the branches for true and for false; of a while, the
  /// condition and the body.
  std::vector<std::vector<StagePlan>> regions;
  int64_t predicate = -1;     ///< the buffer of a cond's or while's predicate, one bool
  std::vector<DimExpr> work;  ///< the work of one step, as Plan::work

  bool operator==(const ControlPlan& other) const;
  template <typename Self = ControlPlan>
  static constexpr auto fields() {
    return std::tuple{Field{"slices", &Self::slices},       Field{"carries", &Self::carries},
                      Field{"reverse", &Self::reverse},     Field{"regions", &Self::regions},
                      Field{"predicate", &Self::predicate}, Field{"work", &Self::work}};
  }
};

struct StagePlan {
  enum class Kind : uint8_t { kRows, kScan, kCall, kLoop, kCond, kWhile };
  Kind kind = Kind::kRows;
  int64_t index = 0;          ///< the number of the stage; stages within a stage have the numbers after its own
  std::string symbol;         ///< the name of the machine code; of a call, the name of its op
  KernelCall call;            ///< of kCall
  bool outside = false;       ///< is, or contains, a call that the caller's thread makes while the team is idle
  DimExpr rows;               ///< rows of the domain, or of the batch of a scan
  bool splits_rows = true;    ///< false: a scan whose rows depend on each other
  int64_t row_block = 1;      ///< each thread gets a multiple of this many rows
  DimExpr length;             ///< steps of a scan or loop
  int64_t batch_sizes = -1;   ///< of a ragged scan: the buffer with the rows of each step, i64[length], ...
  DimExpr packed;             ///< ... and their sum
  int64_t column_shares = 1;  ///< the most threads that can share the columns; 1: they can't be shared
  StepWork step;              ///< of a scan
  bool reverse = false;       ///< a scan whose steps take slices from the last to the first
  /// A stage before the scan that stores stacks for its steps alone. It may run within the scan instead, for some steps
  /// at a time (window.h). For each row of the scan and each step the stage has the same number of rows.
  struct Window {
    int64_t stage = 0;             ///< StagePlan::index
    std::vector<int64_t> buffers;  ///< the buffers that it stores: stacks over the scan's length
    std::vector<int64_t> reads;    ///< the buffers that it reads; within the scan, until the scan's last step
    int64_t weight_bytes = 0;      ///< bytes of its products' weights
    int64_t column_shares = 1;     ///< the stage's StagePlan::column_shares

    bool operator==(const Window&) const = default;
    template <typename Self = Window>
    static constexpr auto fields() {
      return std::tuple{Field{"stage", &Self::stage}, Field{"buffers", &Self::buffers}, Field{"reads", &Self::reads},
                        Field{"weight_bytes", &Self::weight_bytes}, Field{"column_shares", &Self::column_shares}};
    }
  };
  std::vector<Window> windows;
  std::vector<int64_t> packs;  ///< of kRows and kScan: the packs it multiplies by, of those that may be left out
  /// For a scan or loop of no steps: its results, each a copy of the initial carry.
  struct CarryCopy {
    int64_t from = 0, to = 0;

    bool operator==(const CarryCopy&) const = default;
    template <typename Self = CarryCopy>
    static constexpr auto fields() {
      return std::tuple{Field{"from", &Self::from}, Field{"to", &Self::to}};
    }
  };
  std::vector<CarryCopy> carry_copies;
  /// A scan that follows another of several scans side by side; both by index. At each step the follower reads only
  /// what the leader has stored for that step, so it may run some steps behind.
  struct Follows {
    int64_t scan = 0, leader = 0;

    bool operator==(const Follows&) const = default;
    template <typename Self = Follows>
    static constexpr auto fields() {
      return std::tuple{Field{"scan", &Self::scan}, Field{"leader", &Self::leader}};
    }
  };
  /// For the first of several scans that are independent or follow each other. They may run at the same time, each by
  /// one member, if the stages from this scan to the last scan run in another order: `before`, `scans`, `after`. Each
  /// entry is a place in the list of stages, relative to this stage. Stages in none of the three run in windows of
  /// scans that follow.
  struct SideBySide {
    std::vector<int64_t> before, scans, after;
    std::vector<Follows> follows;

    bool operator==(const SideBySide&) const = default;
    template <typename Self = SideBySide>
    static constexpr auto fields() {
      return std::tuple{Field{"before", &Self::before}, Field{"scans", &Self::scans}, Field{"after", &Self::after},
                        Field{"follows", &Self::follows}};
    }
  };
  SideBySide side_by_side;
  ControlPlan control;
  std::vector<DimExpr> work;  ///< as Plan::work; of stages between calls `outside`, and in windows

  bool operator==(const StagePlan&) const = default;
  template <typename Self = StagePlan>
  static constexpr auto fields() {
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
                      Field{"reverse", &Self::reverse},
                      Field{"windows", &Self::windows},
                      Field{"packs", &Self::packs},
                      Field{"carry_copies", &Self::carry_copies},
                      Field{"side_by_side", &Self::side_by_side},
                      Field{"control", &Self::control},
                      Field{"work", &Self::work}};
  }
};

/// A program as the executable runs it: buffers, and stages one after the other. Plain data: it can be printed,
/// compared and written to a file (plan_text.h), and needs only a StageCode to run.
struct Plan {
  std::vector<std::string> symbols;
  std::vector<DerivedSize> derived;  ///< values that each call computes, after those of symbols
  std::vector<SizeCheck> checks;
  std::vector<DimExpr> dims;  ///< the sizes that machine code gets as the array `dims`
  std::vector<BufferPlan> buffers;
  std::vector<StagePlan> stages;
  int64_t stage_count = 0;    ///< including stages within stages
  std::vector<DimExpr> work;  ///< the work of a call in multiply-adds: a sum of terms

  bool operator==(const Plan&) const = default;
  template <typename Self = Plan>
  static constexpr auto fields() {
    return std::tuple{Field{"symbols", &Self::symbols},         Field{"derived", &Self::derived},
                      Field{"checks", &Self::checks},           Field{"dims", &Self::dims},
                      Field{"buffers", &Self::buffers},         Field{"stages", &Self::stages},
                      Field{"stage_count", &Self::stage_count}, Field{"work", &Self::work}};
  }
};

/// The values of a call's sizes from those of its symbols, which may be followed by others. User's error if one
/// overflows, or a size is negative.
std::vector<int64_t> values_of(const Plan& plan, const std::vector<int64_t>& symbols);

/// The life of a buffer: from the first stage that needs its memory to the last (StagePlan::index), both included.
struct Life {
  int64_t first = 0, last = 0;

  bool meets(const Life& other) const { return first <= other.last && other.first <= last; }
};

/// The orders in which the stages of a run may read and write memory.
enum class StageOrder : uint8_t {
  kInTurn,     ///< one after the other
  kWindows,    ///< stages in windows of scans too: their inputs live as long as the scan
  kSideBySide  ///< also any order in which scans side by side may run: whatever is live at some time from the first
               ///< scans to the last then lives all the time
};

/// By buffer.
std::vector<Life> lives(const Plan& plan, StageOrder order);

/// Bytes rounded up to whole cache lines, in which memory is given.
int64_t padded(int64_t bytes);

/// Bytes of one instance of a buffer, without padding.
int64_t bytes_of(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values);

/// Bytes of one instance of a buffer, padded to a cache line.
int64_t instance_bytes(const BufferPlan& buffer, const std::vector<int64_t>& symbol_values);

/// The number of instances of a buffer, with `members` as ArenaPlanner::lay_out takes them.
int64_t instances(const BufferPlan& buffer, const std::vector<int64_t>& members);

}  // namespace weft::runtime
