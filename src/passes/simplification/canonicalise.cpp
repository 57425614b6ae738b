#include "passes/simplification/canonicalise.h"

#include <unordered_map>

#include "passes/simplification/simplifier.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::Type;
using ir::ValueId;
using Dims = std::vector<int64_t>;

class Canonicalise {
 public:
  explicit Canonicalise(Program& program) : program_(program), simplifier_(program) {}

  /// One sweep; true iff something changed.
  bool run() {
    run(program_.body);
    return simplifier_.changed;
  }

 private:
  void run(Block& block) {
    Block out;
    Block* before = simplifier_.enter(&out);
    run_ops(block);
    for (ValueId& v : block.results) v = replaced_(v);
    simplifier_.enter(before);
    block.ops = std::move(out.ops);
  }

  void run_ops(Block& block) {
    for (Op& op : block.ops) {
      for (ValueId& v : op.operands) v = replaced_(v);
      if (op.code == OpCode::kScan)
        run_scan(std::move(op));
      else if (op.code == OpCode::kCond)
        run_cond(std::move(op));
      else if (op.code == OpCode::kWhile)
        run_while(std::move(op));
      else if (op.results.size() != 1)
        simplifier_.append(std::move(op));
      else
        run_op(std::move(op));
    }
  }

  void run_op(Op op) {
    ValueId own = op.results[0];
    replace(own, simplifier_.add(std::move(op)));
  }

  void replace(ValueId from, ValueId to) { replaced_.set(from, to); }

  void run_scan(Op op) {
    ScanParts parts(std::move(op));
    Block region;
    repeated_xs(parts, region);
    constant_carries(parts);
    region.ops.insert(region.ops.end(), std::make_move_iterator(parts.ops.begin()),
                      std::make_move_iterator(parts.ops.end()));
    for (const auto& carry : parts.carries) region.results.push_back(carry.out);
    for (const auto& y : parts.ys) region.results.push_back(y.out);
    if (parts.ragged) simplifier_.enter_ragged(*parts.ragged);
    run(region);
    if (parts.ragged) simplifier_.leave_ragged();
    parts.ops = std::move(region.ops);
    for (size_t i = 0; i < parts.carries.size(); ++i) parts.carries[i].out = region.results[i];
    for (size_t i = 0; i < parts.ys.size(); ++i) parts.ys[i].out = region.results[parts.carries.size() + i];
    known_ys(parts);
    simplifier_.append(std::move(parts).build());
  }

  void run_cond(Op op) {
    if (std::optional<double> known = simplifier_.splat(op.operands[0])) return take_branch(op, *known != 0 ? 0 : 1);
    if (const ValueId opposite = simplifier_.negation_of(op.operands[0]); opposite != ir::kNoValue) {
      op.operands[0] = opposite;
      std::swap(op.regions[0], op.regions[1]);
      simplifier_.changed = true;
    }
    for (Block& region : op.regions) run(region);
    same_in_both(op);
    simplifier_.append(std::move(op));
  }

  /// Replaces a cond whose predicate is known by the ops of the region that is chosen.
  void take_branch(Op& op, size_t branch) {
    Block& region = op.regions[branch];
    simplifier_.changed = true;
    run_ops(region);
    for (size_t i = 0; i < op.results.size(); ++i) replace(op.results[i], replaced_(region.results[i]));
  }

  /// A value that both regions of a cond yield needs no cond.
  void same_in_both(Op& op) {
    Block& yes = op.regions[0];
    Block& no = op.regions[1];
    for (size_t i = op.results.size(); i-- > 0;) {
      if (yes.results[i] != no.results[i]) continue;
      replace(op.results[i], yes.results[i]);
      for (auto* list : {&op.results, &yes.results, &no.results}) list->erase(list->begin() + static_cast<int64_t>(i));
      simplifier_.changed = true;
    }
  }

  /// Replaces carries that a step yields unchanged by captured values.
  void run_while(Op op) {
    Block& body = op.regions[1];
    for (size_t i = op.results.size(); i-- > 0;) {
      if (body.results[i] != body.args[i] && replaced_(body.results[i]) != op.operands[i]) continue;
      for (ValueId v : {op.regions[0].args[i], body.args[i], op.results[i]}) replace(v, op.operands[i]);
      for (auto* list : {&op.operands, &op.results, &op.regions[0].args, &body.args, &body.results})
        list->erase(list->begin() + static_cast<int64_t>(i));
      simplifier_.changed = true;
    }
    for (Block& region : op.regions) run(region);
    simplifier_.append(std::move(op));
  }

  /// Replaces an x by a captured value if its stack repeats that value.
  void repeated_xs(ScanParts& parts, Block& region) {
    std::erase_if(parts.xs, [&](const ScanParts::X& x) {
      const Op* op = simplifier_.definition(x.stack);
      if (!op) return false;
      Type step = program_.type(x.arg);
      if (ir::is_constant(op->code)) {
        Op constant{OpCode::kConstant, {}, {x.arg}, op->attrs, {}};
        region.ops.push_back(std::move(constant));
      } else if (ir::is_repeated(op->code)) {
        Dims dims = op->attr<Dims>("dims");
        if (!dims.empty() && dims[0] == 0) return false;
        if (program_.type(x.stack).rank() != program_.type(x.arg).rank())
          for (int64_t& dim : dims) --dim;
        Op broadcast{OpCode::kBroadcast, op->operands, {x.arg}, {{"dims", std::move(dims)}}, {}};
        region.ops.push_back(std::move(broadcast));
      } else {
        return false;
      }
      simplifier_.changed = true;
      return true;
    });
  }

  /// Removes carries that a step yields unchanged, and carries whose init is the constant that every step yields.
  void constant_carries(ScanParts& parts) {
    std::unordered_map<ValueId, double> constants;
    for (const Op& op : parts.ops)
      if (const auto value = ir::constant_value(op)) constants.emplace(op.results[0], *value);
    std::erase_if(parts.carries, [&](const ScanParts::Carry& carry) {
      bool same = carry.out == carry.arg || replaced_(carry.out) == carry.init;
      if (auto it = constants.find(carry.out); !same && it != constants.end())
        same = simplifier_.splat(carry.init) == it->second;
      if (!same) return false;
      replace(carry.arg, carry.init);
      replace(carry.result, carry.init);
      simplifier_.changed = true;
      return true;
    });
  }

  /// Removes ys that are xs or the same in every step.
  void known_ys(ScanParts& parts) {
    std::unordered_map<ValueId, ValueId> stack;
    for (const auto& x : parts.xs) stack.emplace(x.arg, x.stack);
    std::unordered_map<ValueId, double> constants;
    ValueSet inside;
    for (const auto& carry : parts.carries) inside.insert(carry.arg);
    for (const Op& op : parts.ops) {
      for (ValueId result : op.results) inside.insert(result);
      if (const auto value = ir::constant_value(op)) constants.emplace(op.results[0], *value);
    }
    std::erase_if(parts.ys, [&](const ScanParts::Y& y) {
      Type result = program_.type(y.stack);
      if (auto it = stack.find(y.out); it != stack.end()) {
        replace(y.stack, it->second);
      } else if (auto c = constants.find(y.out); c != constants.end()) {
        replace(y.stack, simplifier_.constant(c->second, result));
      } else if (!inside.contains(y.out) && result.rank() != program_.type(y.out).rank()) {
        Dims dims;
        for (size_t i = 1; i < result.shape.size(); ++i) dims.push_back(static_cast<int64_t>(i));
        replace(y.stack, simplifier_.make(OpCode::kBroadcast, {y.out}, {{"dims", std::move(dims)}}, &result));
      } else {
        return false;
      }
      simplifier_.changed = true;
      return true;
    });
  }

  Program& program_;
  Simplifier simplifier_;
  Substitution replaced_;
};

}  // namespace

void canonicalise(Program& program) {
  constexpr int kMostSweeps = 8;
  for (int i = 0; i < kMostSweeps; ++i)
    if (!Canonicalise(program).run()) return;
}

}  // namespace weft::passes
