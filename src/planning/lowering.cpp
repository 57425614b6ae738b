#include "planning/lowering.h"

#include <algorithm>
#include <unordered_map>

namespace weft::planning {
namespace {

using ir::Block;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::Shape;
using ir::ValueId;

bool divides_integers(const Program& program, const Op& op) {
  return ir::traits_of(op.code).fails_where == ir::FailsWhere::kIntegers &&
         !is_floating(program.type(op.results[0]).dtype);
}

/// Finds integer divisions that can't fail: those by a constant other than 0 and -1. (The processor traps on the least
/// integer divided by -1.)
class SafeDivisions {
 public:
  explicit SafeDivisions(const Program& program) : program_(program) { visit(program.body); }

  passes::ValueSet take() { return std::move(safe_); }

 private:
  void visit(const Block& block) {
    for (const Op& op : block.ops) {
      for (ValueId result : op.results) definition_[result] = &op;
      for (const Block& region : op.regions) visit(region);
      if (divides_integers(program_, op) && is_harmless(op.operands[1])) safe_.insert(op.results[0]);
    }
  }

  bool is_harmless(ValueId value) const {
    auto found = definition_.find(value);
    while (found != definition_.end() && (ir::is_repeated(found->second->code) || ir::is_alias(found->second->code)))
      found = definition_.find(found->second->operands[0]);
    const auto divisor = found == definition_.end() ? std::nullopt : ir::constant_value(*found->second);
    return divisor && *divisor != 0 && *divisor != -1;
  }

  const Program& program_;
  std::unordered_map<ValueId, const Op*> definition_;
  passes::ValueSet safe_;
};

/// Whether the op reduces one dim alone, the one that is `from_last` dims before the last.
bool reduces_one_dim(const Program& program, const Op& op, int64_t from_last) {
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  return dims.size() == 1 && dims[0] == program.type(op.operands[0]).rank() - 1 - from_last;
}

/// Finds the reductions over rows that are done where their elements are computed. Inside scans only: there the result
/// of a call, and the elements that it reads, would wait in memory at every step. Of a program's body they are calls,
/// whose threads share columns too.
class FusedRowReductions {
 public:
  explicit FusedRowReductions(const Program& program) : program_(program) { visit(program.body, false); }

  passes::ValueSet take() { return std::move(found_); }

 private:
  /// More rows than these are summed by a call, which bounds the error of long sums (runtime/simd/fold.h).
  static constexpr int64_t kMostRows = 256;

  void visit(const Block& block, bool in_scan) {
    passes::ValueSet elementwise;
    for (const Op& op : block.ops) {
      if (info(op.code).op_class == OpClass::kElementwise) elementwise.insert(op.results[0]);
      if (in_scan && is_reduction(op) && elementwise.contains(op.operands[0]) && fits(op)) found_.insert(op.results[0]);
      for (const Block& region : op.regions)
        visit(region, in_scan || ir::traits_of(op.code).lowering == Lowering::kScan);
    }
  }

  bool fits(const Op& op) const {
    const ir::Type& type = program_.type(op.operands[0]);
    if (!reduces_one_dim(program_, op, 1)) return false;
    const ir::Dim& rows = type.shape[type.shape.size() - 2];
    return rows.is_constant() && rows.constant() >= 1 && rows.constant() <= kMostRows;
  }

  const Program& program_;
  passes::ValueSet found_;
};

bool joins_columns(const Program& program, const Op& op) {
  return op.attr<int64_t>("dim") == program.type(op.results[0]).rank() - 1;
}

bool has_equal_columns(const Program& program, const Op& concat) {
  if (!joins_columns(program, concat)) return false;
  const Shape& first = program.type(concat.operands[0]).shape;
  return first.back().is_constant() &&
         std::ranges::all_of(concat.operands, [&](ValueId v) { return program.type(v).shape == first; });
}

const ScanDecision kUndecided;

}  // namespace

LoweringRules::LoweringRules(const Program& program, const Target& target)
    : program_(&program),
      target_(&target),
      safe_divisions_(SafeDivisions(program).take()),
      row_reductions_(FusedRowReductions(program).take()) {}

bool LoweringRules::all_computed(const Op& op) const {
  auto computed = [&](ValueId v) { return target_->computes(program_->type(v).dtype); };
  return std::ranges::all_of(op.operands, computed) && std::ranges::all_of(op.results, computed);
}

/// Dividing integers by zero is the user's error, which machine code cannot raise.
bool LoweringRules::may_fail(const Op& division) const {
  return divides_integers(*program_, division) && !safe_divisions_.contains(division.results[0]);
}

Lowering LoweringRules::of(const Op& op) const {
  const Lowering best = ir::traits_of(op.code).lowering;
  if (best == Lowering::kScan) return decision(op).lowering;
  if (best == Lowering::kControl || best == Lowering::kAlias) return best;
  // Stages don't compute on 8-bit weights, but products take them: the target knows its products' types.
  if (is_stage_product(op)) return target_->tile(*program_, op) ? Lowering::kFused : Lowering::kCall;
  if (!all_computed(op)) return Lowering::kCall;
  // Machine code has the start of a view in its addresses, so the start must be a number.
  if (ir::is_range(op.code) && !size_attr(op, "start").is_constant()) return Lowering::kCall;
  if (best == Lowering::kView || is_ranges(op)) return Lowering::kView;
  if (may_fail(op)) return Lowering::kCall;
  if (is_reduction(op) && !reduces_one_dim(*program_, op, 0) && !reduces_rows(op)) return Lowering::kCall;
  if (best != Lowering::kRowCopy) return best;
  if (std::ssize(op.operands) > target_->limits().parts) return Lowering::kCall;
  if (ir::is_join(op.code) && has_equal_columns(*program_, op)) return Lowering::kFused;
  return joins_columns(*program_, op) ? Lowering::kRowCopy : Lowering::kCall;
}

std::optional<ProductTile> LoweringRules::tile(const Op& op) const {
  return is_stage_product(op) ? target_->tile(*program_, op) : std::nullopt;
}

bool LoweringRules::is_ranges(const Op& op) const { return ir::is_join(op.code) && ranges_.contains(op.results[0]); }

void LoweringRules::decide(const Op& scan, ScanDecision decision) {
  decisions_[&scan.regions[0]] = std::move(decision);
}

const ScanDecision& LoweringRules::decision(const Op& scan) const {
  auto found = decisions_.find(&scan.regions[0]);
  return found == decisions_.end() ? kUndecided : found->second;
}

bool is_view(OpCode code) { return ir::traits_of(code).lowering == Lowering::kView; }

bool is_reduction(const Op& op) { return info(op.code).op_class == OpClass::kReduction; }

bool is_stage_product(const Op& op) {
  return info(op.code).op_class == OpClass::kProduct && ir::traits_of(op.code).lowering == Lowering::kFused;
}

Shape domain_of(const LoweringRules& rules, const Op& op, bool batched) {
  const bool reads_operand = is_reduction(op) || ir::is_join(op.code);
  Shape shape = rules.program().type(reads_operand ? op.operands[0] : op.results[0]).shape;
  if (const auto tile = rules.tile(op)) shape.back() = tile->width();
  if (shape.empty() || (batched && shape.size() == 1)) shape.push_back(1);
  return shape;
}

}  // namespace weft::planning
