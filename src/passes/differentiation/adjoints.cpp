#include "passes/differentiation/adjoints.h"

#include "passes/differentiation/vjp_rules.h"
#include "passes/loops/min_cut.h"

namespace weft::passes {

using ir::Block;
using ir::kNoValue;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

ValueId Adjoints::cotangent(ValueId value) const {
  auto it = cotangents_.find(value);
  return it == cotangents_.end() ? kNoValue : it->second;
}

ValueId Adjoints::cotangent_or_zero(ValueId value) {
  ValueId known = cotangent(value);
  return known != kNoValue ? known : builder_.constant(0, ir::Type(program_.type(value)));
}

void Adjoints::accumulate(ValueId value, ValueId cotangent) {
  if (!wants(value) || cotangent == kNoValue) return;
  auto [it, is_new] = cotangents_.emplace(value, cotangent);
  if (is_new)
    reached_.push_back(value);
  else
    it->second = builder_.add(it->second, cotangent);
}

void Adjoints::differentiate(std::vector<Op>& ops) {
  for (size_t i = ops.size(); i-- > 0;) {
    Op& op = ops[i];
    vjp_rules::Rule rule = vjp_rules::rule(op.code);
    if (!rule) continue;
    bool reached = false;
    for (ValueId result : op.results) reached = reached || cotangent(result) != kNoValue;
    if (reached) rule(*this, op);
  }
}

namespace {

/// A scan's carries vary when what they begin with or what a step makes of them does.
void mark_varied_scan(const Program& program, const Op& op, ValueSet& varied) {
  ir::ScanView scan(op);
  for (size_t i = 0; i < scan.xs.size(); ++i)
    if (varied.contains(scan.xs[i])) varied.insert(scan.x_args[i]);
  for (size_t i = 0; i < scan.inits.size(); ++i)
    if (varied.contains(scan.inits[i])) varied.insert(scan.carry_args[i]);
  bool changed = true;
  while (changed) {
    mark_varied(program, scan.region, varied);
    changed = false;
    for (size_t i = 0; i < scan.carry_outs.size(); ++i)
      if (varied.contains(scan.carry_outs[i])) changed = varied.insert(scan.carry_args[i]) || changed;
  }
  for (size_t i = 0; i < op.results.size(); ++i) {
    bool is_carry = i < scan.carry_args.size();
    if (varied.contains(scan.region.results[i]) || (is_carry && varied.contains(scan.carry_args[i])))
      varied.insert(op.results[i]);
  }
}

void mark_varied_cond(const Program& program, const Op& op, ValueSet& varied) {
  for (const Block& region : op.regions) {
    mark_varied(program, region, varied);
    for (size_t i = 0; i < op.results.size(); ++i)
      if (varied.contains(region.results[i])) varied.insert(op.results[i]);
  }
}

/// Too dear to compute twice.
bool is_expensive(OpCode code, Keep keep) {
  if (keep == Keep::kCheckpoint) return false;
  if (code == OpCode::kScan) return true;
  if (keep == Keep::kMinimal) return false;
  return ir::traits_of(code).cost == ir::Cost::kDear;
}

}  // namespace

void mark_varied(const Program& program, const Block& block, ValueSet& varied) {
  for (const Op& op : block.ops) {
    if (op.code == OpCode::kScan) {
      mark_varied_scan(program, op, varied);
      continue;
    }
    if (op.code == OpCode::kCond) {
      mark_varied_cond(program, op, varied);
      continue;
    }
    if (!vjp_rules::rule(op.code)) continue;
    bool varies = false;
    for_each_use(op, [&](ValueId v) { varies = varies || varied.contains(v); });
    if (!varies) continue;
    for (ValueId result : op.results)
      if (is_floating(program.type(result).dtype)) varied.insert(result);
  }
}

std::vector<ValueId> choose_kept(const Program& program, const Block& block, const ValueSet& demanded,
                                 const ValueSet& available, const ValueSet& pinned, const ValueSet& for_derivative,
                                 Keep keep) {
  // Keeping a view would copy it. So of a view and its operand of the same size the operand is kept.
  constexpr int64_t kPlain = 100;
  constexpr int64_t kView = 101;
  MinCut cut;
  std::unordered_map<ValueId, int> node;
  std::vector<ValueId> order;
  auto add = [&](ValueId v, int64_t factor, bool is_free) {
    bool free = is_free || available.contains(v);
    int number = cut.add(free ? 0 : estimated_bytes(program.type(v)) * factor);
    node.emplace(v, number);
    order.push_back(v);
    if (demanded.contains(v)) cut.demand(number);
    return number;
  };
  for (ValueId arg : block.args)
    if (int number = add(arg, kPlain, !pinned.contains(arg)); pinned.contains(arg)) cut.pin(number);
  for (const Op& op : block.ops)
    for (ValueId result : op.results) {
      int number = add(result, info(op.code).op_class == OpClass::kMovement ? kView : kPlain, false);
      if (is_expensive(op.code, keep) && !for_derivative.contains(result)) {
        cut.pin(number);
        continue;
      }
      for_each_use(op, [&](ValueId v) {
        if (auto it = node.find(v); it != node.end()) cut.depends(number, it->second);
      });
    }
  std::vector<bool> kept = cut.solve();
  std::vector<ValueId> result;
  for (size_t i = 0; i < order.size(); ++i)
    if (kept[i]) result.push_back(order[i]);
  return result;
}

}  // namespace weft::passes
