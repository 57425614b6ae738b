#pragma once

#include <memory>
#include <vector>

#include "runtime/arena_layout.h"
#include "runtime/run.h"
#include "runtime/team.h"

namespace weft::runtime {

/// A plan with the code of its stages. Thread-safe: any number of calls at once, each with an arena of its own.
class NativeProgram {
 public:
  NativeProgram(Plan plan, StageCode code) : plan_(std::move(plan)), code_(std::move(code)), arena_planner_(plan_) {}
  NativeProgram(const NativeProgram&) = delete;
  NativeProgram& operator=(const NativeProgram&) = delete;

  const Plan& plan() const { return plan_; }

  /// Runs all stages in one parallel region, with a barrier after each, and after each stage of a loop's step. `inputs`
  /// and `outputs` are dense; `symbols` gives the values of plan().symbols, and may go on behind these. User's error
  /// when a size is negative or a stage finds bad data (an index out of range), std::bad_alloc when there is no memory
  /// for the arena.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
           const std::vector<int64_t>& symbols, Team& team) const;

 private:
  struct LayoutKey {
    std::vector<int64_t> values;
    int64_t threads = 1;  ///< of the team
    bool uses_outputs = false;
    bool share_all = false;     ///< Settings::share_all
    std::string pack{};         ///< Settings::pack
    int64_t window = -1;        ///< Settings::window
    int64_t side_by_side = -1;  ///< Settings::side_by_side
    bool operator==(const LayoutKey&) const = default;
  };
  struct Layout {
    LayoutKey key;
    std::vector<int64_t> dims;
    ArenaLayout arena;
    std::vector<StageSizes> stages;
    std::vector<int64_t> left_out;        ///< buffers without memory: left_out_packs
    std::vector<BufferBytes> on_the_way;  ///< packs_on_the_way
    std::vector<BufferBytes> others;      ///< as ArenaPlanner::lay_out takes them
  };
  std::shared_ptr<const Layout> layout(LayoutKey key) const;
  /// Null if none is kept. Under the lock of this program.
  std::shared_ptr<const Layout> kept_layout(const LayoutKey& key) const;
  std::shared_ptr<const Layout> make_layout(LayoutKey key) const;

  Plan plan_;
  StageCode code_;
  ArenaPlanner arena_planner_;
  mutable std::vector<std::shared_ptr<const Layout>> layouts_;  // the latest few, the last used first
};

}  // namespace weft::runtime
