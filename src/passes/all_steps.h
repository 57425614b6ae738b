#pragma once

#include <unordered_map>

#include "passes/rewrite.h"

namespace weft::passes {

/// Does the work of a scan's steps for all steps at once, outside the scan: an op on `f32[B,8]` becomes the op on
/// `f32[T,B,8]`. What hoist does before the loop and sink behind it.
class AllSteps {
 public:
  /// `outside` is where the ops go; `inside` are the values of the scan's region, all others are the same in every
  /// step.
  AllSteps(ir::Builder& outside, ir::Dim length, const ValueSet& inside)
      : outside_(outside), length_(std::move(length)), inside_(inside) {}

  /// Whether the op has a form for all steps; `varies(v)` tells which of its operands differ from step to step (at
  /// least one).
  template <typename F>
  static bool is_possible(const ir::Program& program, const ir::Op& op, F&& varies);

  /// The stack of a value of the region is known.
  void set(ir::ValueId value, ir::ValueId stack) { stacks_[value] = stack; }
  bool has(ir::ValueId value) const { return stacks_.contains(value); }
  /// The stack of a value: one that was set or emitted, or a value from outside repeated for each step.
  ir::ValueId stack(ir::ValueId value);
  /// Emits the op for all steps; the stacks of the operands from inside must be known.
  void emit(const ir::Op& op);

 private:
  bool varies(ir::ValueId value) const { return inside_.contains(value); }
  ir::ValueId matmul(const ir::Op& op);
  ir::ValueId outer(const ir::Op& op);
  ir::ValueId with_declared(const ir::Op& op, std::vector<ir::ValueId> operands, ir::Attrs attrs);

  ir::Builder& outside_;
  ir::Dim length_;
  const ValueSet& inside_;
  std::unordered_map<ir::ValueId, ir::ValueId> stacks_;
};

template <typename F>
bool AllSteps::is_possible(const ir::Program& program, const ir::Op& op, F&& varies) {
  for (const auto* values : {&op.operands, &op.results})
    for (ir::ValueId v : *values)
      if (program.type(v).rank() >= ir::kMaxRank) return false;
  switch (op.code) {
    case ir::OpCode::kGather:
      return !varies(op.operands[0]);
    case ir::OpCode::kScatterAdd:
    case ir::OpCode::kScan:
    case ir::OpCode::kPack:
    case ir::OpCode::kMatmulPacked:
      return false;
    default:
      return true;
  }
}

}  // namespace weft::passes
