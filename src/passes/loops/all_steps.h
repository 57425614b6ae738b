#pragma once

#include <unordered_map>

#include "passes/loops/batch.h"
#include "passes/rewrite.h"

namespace weft::passes {

/// Applies the batching rules: emits a scan's op for all steps at once, outside the scan. An op on `f32[B,8]` becomes
/// the op on `f32[T,B,8]`. hoist uses this before the loop, sink behind it.
///
/// In a ragged scan an op on rows, `f32[B,8]`, becomes the same op on the packed rows, `f32[N,8]`.
class AllSteps {
 public:
  /// The ops go to `outside`. `inside` holds the values of the scan's region; all other values are the same in every
  /// step.
  AllSteps(ir::Builder& outside, const ScanParts& scan, const ValueSet& inside)
      : outside_(outside), length_(scan.length), ragged_(scan.ragged), inside_(inside) {}

  /// Whether the op has a form for all steps. `varies(v)`: operand v differs from step to step; at least one does.
  template <typename F>
  static bool is_possible(const ir::Program& program, const ir::Op& op, F&& varies);
  /// The same for an op of a scan that may be ragged. `is_captured(v)`: v has rows and comes from outside. A step reads
  /// the first of its rows, so the value has no packed form.
  template <typename F, typename G>
  static bool is_possible(const ir::Program& program, const ir::Op& op, const std::optional<ir::Ragged>& ragged,
                          F&& varies, G&& is_captured);

  /// Declares the stack of a value of the region.
  void set(ir::ValueId value, ir::ValueId stack) { stacks_[value] = stack; }
  bool has(ir::ValueId value) const { return stacks_.contains(value) || same_.contains(value); }
  /// The stack of a value: one that was set or emitted, or a value from outside repeated for each step.
  ir::ValueId stack(ir::ValueId value);
  /// Emits the op for all steps; the stacks of the operands from inside must be known.
  void emit(const ir::Op& op);

 private:
  bool varies(ir::ValueId value) const { return inside_.contains(value) && !same_.contains(value); }
  bool is_rows(ir::ValueId value) const;
  /// A value that is the same in every step, as it is outside.
  ir::ValueId same(ir::ValueId value) const;
  bool emit_ragged(const ir::Op& op);
  ir::ValueId matmul(const ir::Op& op);
  ir::ValueId outer(const ir::Op& op);
  ir::ValueId windows(const ir::Op& op);
  ir::ValueId emit_by(ir::Batching rule, const ir::Op& op, ir::Attrs attrs);
  ir::ValueId with_type(const ir::Op& op, std::vector<ir::ValueId> operands, ir::Attrs attrs);

  ir::Builder& outside_;
  ir::Dim length_;
  std::optional<ir::Ragged> ragged_;
  const ValueSet& inside_;
  std::unordered_map<ir::ValueId, ir::ValueId> stacks_;
  std::unordered_map<ir::ValueId, ir::ValueId> same_;  ///< of a ragged scan: values without rows, done once, unstacked
};

template <typename F>
bool AllSteps::is_possible(const ir::Program& program, const ir::Op& op, F&& varies) {
  for (const auto* values : {&op.operands, &op.results})
    for (ir::ValueId v : *values)
      if (program.type(v).rank() >= ir::kMaxRank) return false;
  if (!op.regions.empty()) return false;
  const ir::Batching rule = ir::traits_of(op.code).batching;
  const bool looks_up = rule == ir::Batching::kLookup || rule == ir::Batching::kWindows;
  return rule != ir::Batching::kNone && !(looks_up && varies(op.operands[0]));
}

template <typename F, typename G>
bool AllSteps::is_possible(const ir::Program& program, const ir::Op& op, const std::optional<ir::Ragged>& ragged,
                           F&& varies, G&& is_captured) {
  if (!ragged) return is_possible(program, op, varies);
  if (op.results.size() != 1 || !keeps_rows(program, op, *ragged)) return false;
  if (!has_rows(program.type(op.results[0]), *ragged)) return is_possible(program, op, varies);
  if (ir::traits_of(op.code).rows == ir::Rows::kFresh && op.attr_or<int64_t>("dim", -1) == 0)
    return false;  // it counts a step's rows
  for (ir::ValueId v : op.operands)
    if (has_rows(program.type(v), *ragged) ? is_captured(v) : varies(v)) return false;
  return true;
}

}  // namespace weft::passes
