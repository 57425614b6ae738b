#include "passes/loops/hoist.h"

#include <unordered_map>

#include "passes/loops/all_steps.h"
#include "passes/loops/min_cut.h"
#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

/// How a value of the region depends on the loop.
enum class Depends : uint8_t {
  kNothing,  ///< the same in every step
  kStep,     ///< on xs; computable for all steps at once
  kLoop      ///< on a carry, or not computable outside
};

/// Whether the op should run for all steps at once wherever it can.
bool must_leave(OpCode code) {
  OpClass op_class = info(code).op_class;
  return op_class == OpClass::kProduct || op_class == OpClass::kReduction || ir::traits_of(code).table >= 0;
}

/// A product whose result is far larger than its operands, such as an outer product of long vectors. The results of all
/// steps at once would take too much memory.
bool grows(const Program& program, const Op& op) {
  constexpr int64_t kMost = 4;
  const ir::Contracts contracts = ir::traits_of(op.code).contracts;
  if (contracts != ir::Contracts::kLeading && contracts != ir::Contracts::kInner) return false;
  int64_t operands = 0;
  for (ValueId v : op.operands) operands += estimated_bytes(program.type(v));
  return estimated_bytes(program.type(op.results[0])) / kMost > operands;
}

/// The cost of reading a stack in the loop, in percent of the stack's bytes. Most stacks must first be written outside,
/// which costs another pass over memory (110): such a stack must be smaller than what the loop reads without it. An
/// elementwise op right behind a product costs nothing outside (100). Slices are better taken inside (102).
int percent(OpCode code, bool leaves, bool behind_product) {
  if (leaves) return 101;
  if (!behind_product) return 110;
  return info(code).op_class == OpClass::kMovement ? 102 : 100;
}

/// Whether the op costs nothing in the loop, where its result is read; a stack of results would only take memory.
bool is_free_inside(OpCode code) { return ir::traits_of(code).cost == ir::Cost::kNothing; }

class Hoist {
 public:
  Hoist(Program& program, Block& before) : program_(program), before_(before) {}

  void run(Op& scan) {
    parts_ = ScanParts(std::move(scan));
    classify();
    move_invariant();
    move_steps();
    scan = std::move(parts_).build();
  }

 private:
  Depends depends(ValueId v) const {
    auto it = depends_.find(v);
    return it == depends_.end() ? Depends::kNothing : it->second;
  }

  Depends depends(const Op& op) const { return op.results.empty() ? Depends::kLoop : depends(op.results[0]); }

  /// The operand that an op reads as a whole in every step (weights, a table). It must exist outside for the op to
  /// leave the loop.
  static size_t whole_operand(OpCode code) {
    const int table = ir::traits_of(code).table;
    return table < 0 ? std::string::npos : static_cast<size_t>(table);
  }

  /// In a ragged scan: rows that are the same in every step but differ from row to row. Only a gather of single rows
  /// could pack them.
  bool is_captured(ValueId v) const {
    return parts_.ragged && has_rows(program_.type(v), *parts_.ragged) && depends(v) == Depends::kNothing &&
           !repeatable_.contains(v);
  }

  bool leaves(const ScanParts::Y& y) const {
    return depends(y.out) != Depends::kLoop && !is_captured(y.out) && !stored_.contains(y.out);
  }

  /// Values whose only use is to be added to a carry that is a running sum. A product among them (the gradient of a
  /// weight) is left to sink, which turns the products of all steps into one over the rows of all steps.
  ValueSet summands() const {
    std::unordered_map<ValueId, int> uses;
    for (const Op& op : parts_.ops) for_each_use(op, [&](ValueId v) { ++uses[v]; });
    for (const auto& carry : parts_.carries) ++uses[carry.out];
    for (const auto& y : parts_.ys) ++uses[y.out];
    ValueSet found;
    for (const auto& carry : parts_.carries)
      if (uses[carry.arg] == 1 && uses[carry.out] == 1) found.insert(carry.out);
    for (size_t i = parts_.ops.size(); i-- > 0;)
      if (const Op& op = parts_.ops[i]; ir::traits_of(op.code).adds != ir::Adds::kNo && found.contains(op.results[0]))
        for (ValueId v : op.operands)
          if (uses[v] == 1) found.insert(v);
    return found;
  }

  void classify() {
    for (const auto& carry : parts_.carries) depends_[carry.arg] = Depends::kLoop;
    for (const auto& x : parts_.xs) depends_[x.arg] = Depends::kStep;
    ValueSet sums = summands();
    for (const Op& op : parts_.ops) {
      Depends worst = Depends::kNothing;
      for_each_use(op, [&](ValueId v) { worst = std::max(worst, depends(v)); });
      auto varies = [&](ValueId v) { return depends(v) != Depends::kNothing; };
      bool stays =
          !AllSteps::is_possible(program_, op, parts_.ragged, varies, [&](ValueId v) { return is_captured(v); }) ||
          grows(program_, op) ||
          (ir::traits_of(op.code).contracts == ir::Contracts::kLeading && sums.contains(op.results[0]));
      if ((worst == Depends::kStep && stays) || !is_repeatable(op)) worst = Depends::kLoop;
      // In a ragged scan a sum over rows differs from step to step even if the rows don't: each step has its own number
      // of rows.
      if (parts_.ragged && worst == Depends::kNothing && !keeps_rows(program_, op, *parts_.ragged))
        worst = Depends::kLoop;
      if (worst == Depends::kNothing && is_free_inside(op.code) && !stays) repeatable_.insert(op.results[0]);
      for (ValueId result : op.results) depends_[result] = worst;
    }
  }

  /// Loop-invariant ops move as they are. A constant or broadcast stays beside its readers in the loop; readers that
  /// move get a clone outside.
  void move_invariant() {
    ValueSet needed;
    for (const Op& op : parts_.ops) {
      if (depends(op) == Depends::kNothing && !is_free_inside(op.code))
        for_each_use(op, [&](ValueId v) { needed.insert(v); });
      if (size_t i = whole_operand(op.code); depends(op) == Depends::kStep && i < op.operands.size())
        needed.insert(op.operands[i]);
    }
    for (size_t i = parts_.ops.size(); i-- > 0;)  // operands of broadcasts that are needed outside
      if (const Op& op = parts_.ops[i]; is_free_inside(op.code) && needed.contains(op.results[0]))
        for (ValueId v : op.operands) needed.insert(v);
    std::vector<Op> stay;
    Substitution outside;
    for (Op& op : parts_.ops) {
      if (depends(op) != Depends::kNothing) {
        if (size_t i = whole_operand(op.code); depends(op) == Depends::kStep && i < op.operands.size())
          op.operands[i] = outside(op.operands[i]);
        stay.push_back(std::move(op));
      } else if (!is_free_inside(op.code)) {
        substitute(op, outside);
        for (ValueId result : op.results) depends_.erase(result);
        before_.ops.push_back(std::move(op));
      } else {
        if (needed.contains(op.results[0])) before_.ops.push_back(clone(program_, op, outside));
        stay.push_back(std::move(op));
      }
    }
    parts_.ops = std::move(stay);
  }

  /// Chooses the stacks that the loop will read: a minimum cut between the ops that must be outside and the values that
  /// the loop's ops read.
  void choose_stacks() {
    std::unordered_map<ValueId, int> node;
    MinCut cut;
    ValueSet behind_product;
    auto cost = [&](ValueId v, int percent) { return estimated_bytes(program_.type(v)) * percent; };
    for (const auto& x : parts_.xs) {
      node[x.arg] = cut.add(cost(x.arg, 100));
      cut.pin(node[x.arg]);  // its stack exists in any case
    }
    for (const Op& op : parts_.ops) {
      bool loop = depends(op) == Depends::kLoop;
      bool step = depends(op) == Depends::kStep;
      if (step) {
        bool leaves = must_leave(op.code);
        bool forced = leaves;
        for (ValueId v : op.operands) forced = forced || behind_product.contains(v);
        if (forced) behind_product.insert(op.results[0]);
        node[op.results[0]] = cut.add(cost(op.results[0], percent(op.code, leaves, forced)));
        if (leaves) cut.pin(node[op.results[0]]);
      }
      for_each_use(op, [&](ValueId v) {
        if (depends(v) != Depends::kStep) return;
        if (step) cut.depends(node[op.results[0]], node[v]);
        if (loop) cut.demand(node[v]);
      });
    }
    for (const auto& carry : parts_.carries)
      if (depends(carry.out) == Depends::kStep) cut.demand(node[carry.out]);
    std::vector<bool> kept = cut.solve();
    for (const auto& [value, number] : node)
      if (kept[static_cast<size_t>(number)]) read_.insert(value);
  }

  /// Elementwise ys that the loop also reads are computed and stored in the loop: computing them outside a second time
  /// would cost more.
  void choose_stored() {
    ValueSet live;
    for (const auto& carry : parts_.carries) live.insert(carry.out);
    for (size_t i = parts_.ops.size(); i-- > 0;) {
      const Op& op = parts_.ops[i];
      bool computed = depends(op) == Depends::kLoop;
      if (depends(op) == Depends::kStep) computed = live.contains(op.results[0]) && !read_.contains(op.results[0]);
      if (!computed) continue;
      for_each_use(op, [&](ValueId v) { live.insert(v); });
      if (depends(op) == Depends::kStep && info(op.code).op_class == OpClass::kElementwise)
        stored_.insert(op.results[0]);
    }
  }

  void move_steps() {
    choose_stacks();
    choose_stored();
    ValueSet inside;
    for (const auto& x : parts_.xs) inside.insert(x.arg);
    ValueSet outside;  // values whose stacks are computed
    for (const auto& y : parts_.ys)
      if (leaves(y)) outside.insert(y.out);
    for (const Op& op : parts_.ops) {
      if (depends(op) == Depends::kLoop) continue;
      inside.insert(op.results[0]);
      if (depends(op) == Depends::kStep && read_.contains(op.results[0])) outside.insert(op.results[0]);
    }
    // Constants and broadcasts stayed in the loop; those that ops outside read are emitted for all steps too.
    for (size_t i = parts_.ops.size(); i-- > 0;)
      if (const Op& op = parts_.ops[i]; !op.results.empty() && outside.contains(op.results[0]))
        for (ValueId v : op.operands)
          if (inside.contains(v)) outside.insert(v);
    ir::Builder builder(program_, before_);
    AllSteps all(builder, parts_, inside);
    for (const auto& x : parts_.xs) all.set(x.arg, x.stack);
    for (const Op& op : parts_.ops)
      if (depends(op) != Depends::kLoop && outside.contains(op.results[0])) all.emit(op);
    rebuild(all);
  }

  void rebuild(AllSteps& all) {
    std::vector<ScanParts::X> xs;
    for (const auto& x : parts_.xs)
      if (read_.contains(x.arg)) xs.push_back(x);
    ValueSet live;  // what the loop still computes
    for (const auto& carry : parts_.carries) live.insert(carry.out);
    std::vector<ScanParts::Y> ys;
    Substitution done;
    for (const auto& y : parts_.ys)
      if (leaves(y)) {
        done.set(y.stack, all.stack(y.out));
      } else {
        live.insert(y.out);
        ys.push_back(y);
      }
    std::vector<Op> ops;
    for (size_t i = parts_.ops.size(); i-- > 0;) {
      Op& op = parts_.ops[i];
      bool needed = false;
      for (ValueId result : op.results) needed = needed || live.contains(result);
      if (!needed && depends(op) != Depends::kLoop) continue;
      if (depends(op) == Depends::kStep && read_.contains(op.results[0])) {
        xs.push_back({all.stack(op.results[0]), op.results[0]});
        continue;
      }
      for_each_use(op, [&](ValueId v) { live.insert(v); });
      ops.push_back(std::move(op));
    }
    parts_.ops.assign(std::make_move_iterator(ops.rbegin()), std::make_move_iterator(ops.rend()));
    parts_.xs = std::move(xs);
    parts_.ys = std::move(ys);
    replaced_ = std::move(done);
  }

 public:
  /// The stacks that are now computed outside.
  const Substitution& replaced() const { return replaced_; }

 private:
  Program& program_;
  Block& before_;
  ScanParts parts_;
  std::unordered_map<ValueId, Depends> depends_;
  ValueSet repeatable_;  ///< constants, and broadcasts of loop-invariant values: the same in every step and row
  ValueSet read_;        ///< the region's values whose stacks the loop reads
  ValueSet stored_;      ///< computed in the loop and, if they are ys, stored there
  Substitution replaced_;
};

void hoist_block(Program& program, Block& block, Substitution& replaced) {
  Block out;
  for (Op& op : block.ops) {
    substitute(op, replaced);
    if (op.code == OpCode::kScan) {
      hoist_block(program, op.regions[0], replaced);
      if (op.attr_or(ir::kCheckpoint, false)) {
        out.ops.push_back(std::move(op));
        continue;
      }
      Hoist hoist(program, out);
      std::vector<ValueId> stacks = op.results;
      hoist.run(op);
      for (ValueId stack : stacks) replaced.set(stack, hoist.replaced()(stack));
      if (op.results.empty()) continue;
    } else {
      for (Block& region : op.regions) hoist_block(program, region, replaced);
    }
    out.ops.push_back(std::move(op));
  }
  block.ops = std::move(out.ops);
  for (ValueId& v : block.results) v = replaced(v);
}

}  // namespace

void hoist(Program& program) {
  Substitution replaced;
  hoist_block(program, program.body, replaced);
}

}  // namespace weft::passes
