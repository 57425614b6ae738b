#pragma once

#include <unordered_map>
#include <vector>

#include "passes/differentiation/vjp.h"
#include "passes/rewrite.h"

namespace weft::passes {

/// The cotangents of a block's values while its ops are differentiated, last to first. A cotangent that is known to be
/// zero is absent, and no op is made for it.
class Adjoints {
 public:
  /// The adjoint ops go to `out`. `varied` holds the values that depend on the inputs of the derivative; only these get
  /// cotangents. A caller that differentiates copies of ops adds the copies' values.
  Adjoints(ir::Program& program, ir::Block& out, ValueSet& varied, Keep keep)
      : program_(program), builder_(program, out), varied_(varied), keep_(keep) {}

  ir::Program& program() { return program_; }
  ir::Builder& builder() { return builder_; }
  ValueSet& varied() { return varied_; }
  Keep keep() const { return keep_; }

  bool wants(ir::ValueId value) const { return varied_.contains(value); }
  /// kNoValue when it is zero.
  ir::ValueId cotangent(ir::ValueId value) const;
  /// The value's cotangent; a constant 0 if it has none.
  ir::ValueId cotangent_or_zero(ir::ValueId value);
  /// Adds to the value's cotangent; nothing when it is not wanted or `cotangent` is kNoValue.
  void accumulate(ir::ValueId value, ir::ValueId cotangent);
  /// The derivative of an op that reads the op's own result reads `value` instead of `result`. Both are equal, but
  /// `value` is the result behind a hook: the gradient that a second derivative gives the result then goes through the
  /// hook too.
  void show(ir::ValueId result, ir::ValueId value) { shown_.insert_or_assign(result, value); }
  ir::ValueId shown(ir::ValueId result) const {
    const auto found = shown_.find(result);
    return found == shown_.end() ? result : found->second;
  }
  /// The values with a cotangent, in the order of their first cotangents.
  const std::vector<ir::ValueId>& reached() const { return reached_; }

  /// Differentiates the ops. Scans among them get further ys: what their backward reads.
  void differentiate(std::vector<ir::Op>& ops);

 private:
  ir::Program& program_;
  ir::Builder builder_;
  ValueSet& varied_;
  Keep keep_;
  std::unordered_map<ir::ValueId, ir::ValueId> cotangents_;
  std::vector<ir::ValueId> reached_;
  std::unordered_map<ir::ValueId, ir::ValueId> shown_;
};

/// Adds to `varied` the values of the block that depend, differentiably, on values that are in it.
void mark_varied(const ir::Program& program, const ir::Block& block, ValueSet& varied);

/// Chooses which values of a block to keep, at the least cost in memory, so that each demanded value is kept or can be
/// recomputed from kept ones. `available`: values that cost nothing to keep. `pinned`: arguments that cannot be
/// recomputed (other arguments are free). `for_derivative`: values that the forward does not read, so that computing
/// one in the backward is no second computation. Returns the kept values in the order of their definition.
std::vector<ir::ValueId> choose_kept(const ir::Program& program, const ir::Block& block, const ValueSet& demanded,
                                     const ValueSet& available, const ValueSet& pinned, const ValueSet& for_derivative,
                                     Keep keep);

}  // namespace weft::passes
