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
  return (op.code == OpCode::kDiv || op.code == OpCode::kRem) && !is_floating(program.type(op.results[0]).dtype);
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
    while (found != definition_.end() &&
           (found->second->code == OpCode::kBroadcast || found->second->code == OpCode::kReshape))
      found = definition_.find(found->second->operands[0]);
    if (found == definition_.end() || found->second->code != OpCode::kConstant) return false;
    auto divisor = found->second->attr<double>("value");
    return divisor != 0 && divisor != -1;
  }

  const Program& program_;
  std::unordered_map<ValueId, const Op*> definition_;
  passes::ValueSet safe_;
};

bool reduces_last_dim_only(const Program& program, const Op& op) {
  const auto& dims = op.attr<std::vector<int64_t>>("dims");
  return dims.size() == 1 && dims[0] == program.type(op.operands[0]).rank() - 1;
}

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
    : program_(&program), target_(&target), safe_divisions_(SafeDivisions(program).take()) {}

bool LoweringRules::all_computed(const Op& op) const {
  auto computed = [&](ValueId v) { return target_->computes(program_->type(v).dtype); };
  return std::ranges::all_of(op.operands, computed) && std::ranges::all_of(op.results, computed);
}

/// Division by zero is the user's error in integers, which machine code cannot raise.
bool LoweringRules::may_fail(const Op& division) const {
  return divides_integers(*program_, division) && !safe_divisions_.contains(division.results[0]);
}

Lowering LoweringRules::of(const Op& op) const {
  using ir::Codegen;
  const Codegen way = ir::traits_of(op.code).codegen;
  if (way == Codegen::kScan) return decision(op).lowering;
  if (way == Codegen::kRegions) return Lowering::kControl;
  if (way == Codegen::kAlias) return Lowering::kAlias;
  // Stages can't compute with 8-bit weights, but products can: the target knows which.
  if (way == Codegen::kProduct) return target_->tile(*program_, op) ? Lowering::kFused : Lowering::kCall;
  if (!all_computed(op)) return Lowering::kCall;
  // The start of a view is part of addresses in machine code, so it must be a number.
  if (op.code == OpCode::kSlice && !size_attr(op, "start").is_constant()) return Lowering::kCall;
  if (way == Codegen::kView || is_ranges(op)) return Lowering::kView;
  if (may_fail(op)) return Lowering::kCall;
  if (way == Codegen::kPointwise) return Lowering::kFused;
  if (way == Codegen::kReduction) return reduces_last_dim_only(*program_, op) ? Lowering::kFused : Lowering::kCall;
  if (way != Codegen::kRows && way != Codegen::kJoin) return Lowering::kCall;
  if (std::ssize(op.operands) > target_->limits().parts) return Lowering::kCall;
  if (way == Codegen::kJoin && has_equal_columns(*program_, op)) return Lowering::kFused;
  return joins_columns(*program_, op) ? Lowering::kRowCopy : Lowering::kCall;
}

std::optional<ProductTile> LoweringRules::tile(const Op& op) const {
  if (ir::traits_of(op.code).codegen != ir::Codegen::kProduct) return {};
  return target_->tile(*program_, op);
}

bool LoweringRules::is_ranges(const Op& op) const {
  return op.code == OpCode::kConcat && ranges_.contains(op.results[0]);
}

void LoweringRules::decide(const Op& scan, ScanDecision decision) {
  decisions_[&scan.regions[0]] = std::move(decision);
}

const ScanDecision& LoweringRules::decision(const Op& scan) const {
  auto found = decisions_.find(&scan.regions[0]);
  return found == decisions_.end() ? kUndecided : found->second;
}

bool is_view(OpCode code) { return ir::traits_of(code).codegen == ir::Codegen::kView; }

bool is_reduction(const Op& op) { return info(op.code).op_class == OpClass::kReduction; }

Shape domain_of(const LoweringRules& rules, const Op& op, bool batched) {
  const bool reads_operand = is_reduction(op) || op.code == OpCode::kConcat;
  Shape shape = rules.program().type(reads_operand ? op.operands[0] : op.results[0]).shape;
  if (const auto tile = rules.tile(op)) shape.back() = tile->width();
  if (shape.empty() || (batched && shape.size() == 1)) shape.push_back(1);
  return shape;
}

}  // namespace weft::planning
