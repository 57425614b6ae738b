#include "passes/differentiation/vjp_rules.h"

// The derivative of a scan is a scan in the other direction. Its carries are the cotangents of the carries, and a sum
// for each captured value. Its xs are the cotangents of the stacks, and the stacks that the forward kept. Its ys are
// the cotangents of the xs.
namespace weft::passes::vjp_rules {
namespace {

using ir::Block;
using ir::kNoValue;
using ir::Op;
using ir::Program;
using ir::ValueId;

class ScanRule {
 public:
  ScanRule(Adjoints& outer, Op& op)
      : outer_(outer), program_(outer.program()), inner_(program_, adjoint_, outer.varied(), outer.keep()), op_(op) {
    forward_ = ScanParts(std::move(op));
  }

  void run() {
    backward_.length = forward_.length;
    backward_.ragged = forward_.ragged;
    backward_.reverse = !forward_.reverse;
    backward_.checkpointed = forward_.checkpointed;
    seed();
    inner_.differentiate(forward_.ops);
    collect();
    connect();
    op_ = std::move(forward_).build();
    outer_.builder().block().ops.push_back(std::move(backward_).build());
    for (const auto& [value, cotangent] : found_) outer_.accumulate(value, cotangent);
  }

 private:
  /// Carries whose cotangent may be nonzero in some step. Follows the results' cotangents back through the ops of a
  /// step, and from a carry's argument to the value yielded for it.
  std::vector<bool> active_carries() {
    std::vector<bool> active(forward_.carries.size()), followed(forward_.ops.size());
    ValueMap<uint32_t> carry_of, definition;  // by argument; by op's result; plus one
    for (size_t i = 0; i < forward_.carries.size(); ++i)
      carry_of[forward_.carries[i].arg] = static_cast<uint32_t>(i) + 1;
    for (size_t i = 0; i < forward_.ops.size(); ++i)
      for (ValueId result : forward_.ops[i].results) definition[result] = static_cast<uint32_t>(i) + 1;
    ValueSet reached;
    std::vector<ValueId> pending;
    auto reach = [&](ValueId v) {
      if (reached.insert(v)) pending.push_back(v);
    };
    auto activate = [&](size_t carry) {
      if (active[carry] || !outer_.wants(forward_.carries[carry].arg)) return;
      active[carry] = true;
      reach(forward_.carries[carry].out);
    };
    for (const auto& y : forward_.ys)
      if (outer_.cotangent(y.stack) != kNoValue) reach(y.out);
    for (size_t i = 0; i < active.size(); ++i)
      if (outer_.cotangent(forward_.carries[i].result) != kNoValue) activate(i);
    while (!pending.empty()) {
      const ValueId v = pending.back();
      pending.pop_back();
      if (const uint32_t carry = carry_of.get(v); carry != 0) activate(carry - 1);
      const uint32_t made = definition.get(v);
      if (made == 0 || followed[made - 1] || !rule(forward_.ops[made - 1].code)) continue;
      followed[made - 1] = true;
      for_each_use(forward_.ops[made - 1], [&](ValueId used) {
        if (outer_.varied().contains(used)) reach(used);
      });
    }
    return active;
  }

  /// Cotangents of what a step yields: from the backward scan's carries and xs.
  void seed() {
    for (const auto& y : forward_.ys) {
      ValueId cotangent = outer_.cotangent(y.stack);
      if (cotangent != kNoValue && outer_.wants(y.out))
        inner_.accumulate(y.out, backward_.step_of(program_, cotangent));
    }
    active_ = active_carries();
    for (size_t i = 0; i < active_.size(); ++i) {
      if (!active_[i]) continue;
      const auto& carry = forward_.carries[i];
      ir::Type type = program_.type(carry.arg);
      ValueId arg = program_.new_value(type);
      ValueId result = program_.new_value(type);
      backward_.carries.push_back({outer_.cotangent_or_zero(carry.result), arg, kNoValue, result});
      inner_.accumulate(carry.out, arg);
    }
  }

  /// Cotangents of what a step takes: to the backward scan's carries and ys, and from there to the scan's operands.
  void collect() {
    size_t next = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (!active_[i]) continue;
      backward_.carries[next].out = inner_.cotangent_or_zero(forward_.carries[i].arg);
      found_.emplace_back(forward_.carries[i].init, backward_.carries[next++].result);
    }
    for (const auto& x : forward_.xs)
      if (ValueId cotangent = inner_.cotangent(x.arg); cotangent != kNoValue && outer_.wants(x.stack))
        found_.emplace_back(x.stack, backward_.stack_of(program_, cotangent));
    inside_ = own_values();
    std::vector<ValueId> reached = inner_.reached();
    for (ValueId captured : reached) {
      if (inside_.contains(captured)) continue;
      ir::Type type = program_.type(captured);
      ValueId arg = program_.new_value(type);
      ValueId result = program_.new_value(type);
      ValueId sum = inner_.builder().add(arg, inner_.cotangent(captured));
      backward_.carries.push_back({outer_.builder().constant(0, type), arg, sum, result});
      found_.emplace_back(captured, result);
    }
  }

  ValueSet own_values() const {
    ValueSet own;
    for (const auto& carry : forward_.carries) own.insert(carry.arg);
    for (const auto& x : forward_.xs) own.insert(x.arg);
    for (const Op& op : forward_.ops)
      for (ValueId result : op.results) own.insert(result);
    return own;
  }

  /// Gives the backward region the forward values that it reads: from stacks that the forward keeps, or recomputed.
  void connect() {
    read_rounded();
    ValueSet demanded;
    auto demand = [&](ValueId v) {
      if (inside_.contains(v)) demanded.insert(v);
    };
    for_each_use(adjoint_, demand);
    for (const auto& carry : backward_.carries) demand(carry.out);
    for (const auto& y : backward_.ys) demand(y.out);
    Substitution map;
    keep(demanded, map);
    recompute(std::move(demanded), map);
    substitute(adjoint_, map);
    for (auto& carry : backward_.carries) carry.out = map(carry.out);
    for (auto& y : backward_.ys) y.out = map(y.out);
    for (Op& op : adjoint_.ops) backward_.ops.push_back(std::move(op));
  }

  /// Where a step rounds a number and need not be exact (ir::kExcessPrecision), the derivative reads what was rounded:
  /// its stack takes half the memory.
  ///
  ///     %y = tanh %x : f32[B,H]
  ///     %r = cast %y {excess_precision = true} : bf16[B,H]
  ///     %w = cast %r : f32[B,H]                             // reads of %y become reads of %w; %r is kept
  void read_rounded() {
    std::unordered_map<ValueId, ValueId> exact;  // by rounded value: the value before rounding
    Substitution rounded;
    for (const Op& op : forward_.ops) {
      if (!ir::is_conversion(op.code)) continue;
      const ValueId from = op.operands[0], to = op.results[0];
      if (op.attr_or<bool>(ir::kExcessPrecision, false) && is_half(program_.type(to).dtype)) exact[to] = from;
      if (auto found = exact.find(from); found != exact.end() && program_.type(found->second) == program_.type(to))
        rounded.set(found->second, to);
    }
    substitute(adjoint_, rounded);
    for (auto& carry : backward_.carries) carry.out = rounded(carry.out);
    for (auto& y : backward_.ys) y.out = rounded(y.out);
  }

  void keep(const ValueSet& demanded, Substitution& map) {
    Block region;
    ValueSet available, pinned;
    std::unordered_map<ValueId, ValueId> stack;
    for (const auto& y : forward_.ys) available.insert(y.out);
    for (const auto& x : forward_.xs) {
      region.args.push_back(x.arg);
      stack.emplace(x.arg, x.stack);
    }
    for (const auto& carry : forward_.carries) {
      region.args.push_back(carry.arg);
      pinned.insert(carry.arg);
    }
    region.ops = std::move(forward_.ops);
    const Keep kept = forward_.checkpointed ? Keep::kCheckpoint : outer_.keep();
    for (ValueId v : choose_kept(program_, region, demanded, available, pinned, {}, kept)) {
      auto x = stack.find(v);
      map.set(v, backward_.step_of(program_, x != stack.end() ? x->second : forward_.stack_of(program_, v)));
    }
    forward_.ops = std::move(region.ops);
  }

  void recompute(ValueSet needed, Substitution& map) {
    std::vector<const Op*> again;
    for (size_t i = forward_.ops.size(); i-- > 0;) {
      const Op& op = forward_.ops[i];
      bool wanted = false;
      for (ValueId result : op.results) wanted = wanted || (needed.contains(result) && !map.contains(result));
      if (!wanted) continue;
      again.push_back(&op);
      for_each_use(op, [&](ValueId v) { needed.insert(v); });
    }
    for (size_t i = again.size(); i-- > 0;) {
      std::vector<std::pair<ValueId, ValueId>> kept;  // some results of a scan may be kept and others not
      for (ValueId result : again[i]->results)
        if (map.contains(result)) kept.emplace_back(result, map(result));
      Op op = clone(program_, *again[i], map);
      for (const auto& [value, stays] : kept) map.set(value, stays);
      backward_.ops.push_back(std::move(op));
    }
  }

  Adjoints& outer_;
  Program& program_;
  Block adjoint_;
  Adjoints inner_;
  Op& op_;
  ScanParts forward_, backward_;
  std::vector<bool> active_;
  std::vector<std::pair<ValueId, ValueId>> found_;  ///< each a value from outside and a summand of its cotangent
  ValueSet inside_;
};

}  // namespace

void scan(Adjoints& adjoints, Op& op) { ScanRule(adjoints, op).run(); }

}  // namespace weft::passes::vjp_rules
