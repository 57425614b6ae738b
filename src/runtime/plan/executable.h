#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/kernels/packs.h"
#include "runtime/memory/arena_layout.h"
#include "runtime/memory/tensor.h"
#include "runtime/plan/run.h"
#include "runtime/threads/team.h"

namespace weft::runtime {

/// A plan with the code of its stages. Thread-safe: any number of calls at once, each with an arena of its own.
class NativeProgram {
 public:
  NativeProgram(Plan plan, StageCode code) : plan_(std::move(plan)), code_(std::move(code)), arena_planner_(plan_) {}
  NativeProgram(const NativeProgram&) = delete;
  NativeProgram& operator=(const NativeProgram&) = delete;

  const Plan& plan() const { return plan_; }

  /// Runs all stages in one parallel region, with a barrier after each, and after each stage of a loop's step. `inputs`
  /// and `outputs` are dense; `symbols` begins with the values of plan().symbols. User's error when a size is negative
  /// or a stage finds bad data (an index out of range), std::bad_alloc when there is no memory for the arena.
  void run(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs, const std::vector<int64_t>& symbols,
           Team& team) const;

 private:
  /// What a layout depends on, besides the settings.
  struct Call {
    std::span<const int64_t> symbols;  ///< values of plan().symbols
    int64_t threads = 1;               ///< the size of the team
    bool aligned = false;              ///< whether all outputs are aligned
  };
  struct Layout {
    /// Whether this layout fits the call's symbols, threads and alignment, and the current settings.
    bool fits(const Call& call) const;

    std::vector<int64_t> symbols;
    std::vector<int64_t> values;    ///< of plan().symbols and derived sizes: values_of
    bool is_small = false;          ///< so little work that the caller's thread does it, however large the team
    bool is_short = false;          ///< so little work that one thread is faster than several that wait for cores
    bool heeds_contention = false;  ///< runs differently while contention() is high
    int64_t threads = 1;
    bool uses_outputs = false;
    bool share_all = false;     ///< Settings::share_all
    std::string pack;           ///< Settings::pack
    int64_t window = -1;        ///< Settings::window
    int64_t side_by_side = -1;  ///< Settings::side_by_side
    std::vector<int64_t> dims;
    ArenaLayout arena;
    std::vector<StageSizes> stages;
    PacksOfProducts packs;                ///< packs that are left out get no memory
    std::vector<PlacesOfMembers> places;  ///< of packs on the way, and window_buffers
    std::vector<BufferBytes> others;      ///< as ArenaPlanner::lay_out takes them
  };
  std::shared_ptr<const Layout> layout(const Call& call) const;
  /// Null if no layout is kept. Call it under this program's layout lock.
  std::shared_ptr<const Layout> kept_layout(const Call& call) const;
  std::shared_ptr<const Layout> make_layout(const Call& call) const;
  /// Sets where each buffer of the plan lies. `arena`: memory of Layout::arena.
  void place(const Layout& layout, std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
             std::byte* arena, std::span<void*> buffers) const;

  Plan plan_;
  StageCode code_;
  ArenaPlanner arena_planner_;
  mutable std::vector<std::shared_ptr<const Layout>> layouts_;  // the latest few, the last used first
};

}  // namespace weft::runtime
