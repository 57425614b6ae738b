#pragma once

#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/builder.h"
#include "passes/rolling/step_match.h"

namespace weft::passes {

/// Writes the ops of a sequence to a new block, with scans in place of the steps that were rolled. Floating ops are
/// written before their first reader.
class RolledWriter {
 public:
  /// Sets `sequence.element`.
  RolledWriter(ir::Program& program, OpSequence& sequence);
  RolledWriter(const RolledWriter&) = delete;
  RolledWriter& operator=(const RolledWriter&) = delete;

  void write(const ir::Op& op);
  /// The scan of the steps.
  void write(StepBody&& body, const Steps& steps);
  /// The new block's value for a value of the sequence. Writes its op if the block lacks it.
  ir::ValueId written(ir::ValueId v);
  /// The new block's ops.
  std::vector<ir::Op> finish();

 private:
  struct Loop {
    Steps steps;
    ScanParts parts;
    std::vector<std::vector<ir::ValueId>> results;  ///< by place in the step
    size_t index;                                   ///< of the scan in the new block
  };
  /// The step of a rolled loop that a value comes from, directly or through floating ops.
  struct Member {
    size_t loop, step;
    bool operator==(const Member&) const = default;
  };
  /// Consecutive operands of a concatenation: `width` values of one step, then the same of `count` - 1 further steps at
  /// equal distances.
  struct Run {
    size_t first, width, count;
    size_t loop;
    int64_t from, stride;  ///< in the order of the stacks
  };

  ir::ValueId element(ir::ValueId v);
  std::optional<ir::ValueId> last_carry(ir::ValueId v) const;
  Loop& loop_of(ir::ValueId v) { return loops_[loop_index(v)]; }
  size_t loop_index(ir::ValueId v) const;
  ir::ValueId body_value(const Loop& loop, ir::ValueId v) const;
  int64_t position(const Loop& loop, size_t step) const;

  bool runs_backwards(const StepBody& body) const;
  ir::ValueId stack(const XSource& source, const ir::Type& step, int64_t count, bool reverse);
  ir::ValueId stack_of_slices(const XSource& source, int64_t count, bool reverse);
  ir::ValueId stack_of_numbers(std::vector<double> numbers, DType dtype);
  ir::ValueId stack_of_values(std::vector<ir::ValueId> values, const ir::Type& step);

  void join_runs(ir::Op& concat);
  std::optional<Member> member(ir::ValueId v) const;
  bool alike(ir::ValueId a, ir::ValueId b) const;
  Run run_at(const std::vector<ir::ValueId>& operands, size_t first) const;
  ir::ValueId join(const std::vector<ir::ValueId>& operands, const Run& run, int64_t dim);
  ir::ValueId in_body(Loop& loop, ir::ValueId v);
  ir::ValueId rows(ir::ValueId stack, int64_t first, int64_t stride, int64_t count);

  ir::Program& program_;
  OpSequence& sequence_;
  ir::Block block_;
  ir::Builder builder_;
  std::deque<Loop> loops_;
  std::vector<int32_t> loop_at_;  ///< by place; -1: none
  std::unordered_map<ir::ValueId, ir::ValueId> elements_;
  ValueSet written_;
  std::unordered_map<ir::ValueId, ir::ValueId> replaced_;  ///< concatenations, and the values that replace them
};

}  // namespace weft::passes
