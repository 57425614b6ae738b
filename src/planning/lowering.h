#pragma once

#include <map>
#include <string>

#include "ir/program.h"
#include "passes/rewrite.h"
#include "planning/target.h"

namespace weft::planning {

using ir::Lowering;

/// How a scan runs.
struct ScanDecision {
  Lowering lowering = Lowering::kScan;  ///< or kLoop, or kCall: the interpreter
  std::string reason;                   ///< why it is not one function; empty if it is
  bool batched = false;                 ///< a function that runs row by row: threads split the rows of the batch
};

/// Whether the op sums or takes the maximum over dims.
bool is_reduction(const ir::Op& op);

/// How each op of a program is lowered for a target. Answers that depend on the op alone are computed on demand; what
/// fusion finds out about the program is stored here. Points into the program.
class LoweringRules {
 public:
  LoweringRules() = default;
  LoweringRules(const ir::Program& program, const Target& target);

  const ir::Program& program() const { return *program_; }
  const Target& target() const { return *target_; }

  /// How the op is lowered. A scan without a decision counts as kScan.
  Lowering of(const ir::Op& op) const;

  /// The tile of a product that is part of a stage; none for any other op.
  std::optional<ProductTile> tile(const ir::Op& op) const;

  /// A concatenation of columns of one value that is a view: all its readers are kernels that take several ranges of
  /// columns (copies.h).
  bool is_ranges(const ir::Op& op) const;
  void set_ranges(const ir::Op& concat) { ranges_.insert(concat.results[0]); }

  /// A reduction over the dim before the last one, [.., R, C] to [.., C], which is part of a stage: each group of R
  /// rows is combined column by column.
  bool reduces_rows(const ir::Op& op) const { return is_reduction(op) && row_reductions_.contains(op.results[0]); }

  void decide(const ir::Op& scan, ScanDecision decision);
  const ScanDecision& decision(const ir::Op& scan) const;

 private:
  bool all_computed(const ir::Op& op) const;
  bool may_fail(const ir::Op& division) const;

  const ir::Program* program_ = nullptr;
  const Target* target_ = nullptr;
  passes::ValueSet ranges_;
  passes::ValueSet safe_divisions_;  ///< results of integer divisions that can't fail
  passes::ValueSet row_reductions_;  ///< results of reductions for which reduces_rows is true
  /// By the scan's region, which stays where it is when ops are inserted around the scan.
  std::map<const ir::Block*, ScanDecision> decisions_;
};

/// Whether a reader of the result addresses the operand instead: constant, broadcast, slice. (reshape is an alias.)
bool is_view(ir::OpCode code);

/// Whether the op is a product by micro-kernels, as a part of a stage.
bool is_stage_product(const ir::Op& op);

/// The shape that an op of a stage runs over: the shape of its result or, for a reduction or concatenation, of its
/// operand. The last dim of a product is the width of one group. A scalar runs over [1] and, in a batched region, a
/// result [B] over [B,1].
ir::Shape domain_of(const LoweringRules& rules, const ir::Op& op, bool batched);

}  // namespace weft::planning
