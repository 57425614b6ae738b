#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/memory/stacking.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/window.h"

namespace weft::runtime {

/// The place of each arena buffer; buffers that live at the same time never overlap. A buffer lies in the arena, or,
/// with `uses_outputs`, in the memory of an output that is written only after the buffer's last stage.
struct ArenaLayout {
  std::vector<int64_t> offsets;  ///< by buffer, in bytes; -1 without memory of the arena's
  std::vector<int64_t> hosts;    ///< by buffer: the output's buffer that it lies in; -1: in the arena
  int64_t bytes = 0;             ///< the size of the arena
};

/// Lays out the buffers of one plan for any values of its symbols; deterministic.
///
/// Few buffers are placed anew for each set of values: first fit in order of size. For many buffers, the order in which
/// they are stacked is computed once, for symbols of a middling size. Other values only move the offsets, in time
/// linear in the number of buffers.
class ArenaPlanner {
 public:
  /// The plan must outlive it.
  explicit ArenaPlanner(const Plan& plan);

  /// Outputs must be aligned to 64 bytes if they are to be used. `members`: how many share the columns of each stage
  /// (by StagePlan::index); empty where none are shared. `others`: buffers that need more or less memory than their
  /// plan says, or none. User's error where a size exceeds 2^61 bytes.
  ArenaLayout lay_out(const std::vector<int64_t>& symbol_values, bool uses_outputs,
                      const std::vector<int64_t>& members = {}, const std::vector<BufferBytes>& others = {},
                      StageOrder stages = StageOrder::kInTurn) const;

 private:
  /// The parts of a layout that depend on the order of stages.
  struct Order {
    std::vector<Life> lives;
    Stacking stacking;  ///< if there are many buffers
  };

  std::vector<int64_t> sizes(const std::vector<int64_t>& symbol_values, const std::vector<int64_t>& members) const;
  void place_few(const std::vector<int64_t>& symbol_values, bool uses_outputs, const std::vector<int64_t>& bytes,
                 const std::vector<Life>& lives, ArenaLayout& layout) const;
  void place_many(const std::vector<int64_t>& symbol_values, bool uses_outputs, std::vector<int64_t> bytes,
                  const Order& order, ArenaLayout& layout) const;
  void stack_buffers();

  const Plan& plan_;
  std::vector<size_t> arena_;           ///< the buffers in the arena; the members below are by index in this list
  std::vector<uint32_t> class_of_;      ///< by entry of arena_; equal sizes are one class
  std::vector<size_t> classes_;         ///< a buffer of each class
  std::map<StageOrder, Order> orders_;  ///< the orders that the plan's runs may need

  // If there are many buffers:
  std::vector<uint32_t> large_;  ///< the largest, which an output may host
  std::vector<size_t> hosts_;    ///< the largest outputs
};

/// A line a buffer (name, bytes, offset, stages), then `peak N bytes`: of the arena.
std::string describe(const Plan& plan, const std::vector<int64_t>& symbol_values);

}  // namespace weft::runtime
