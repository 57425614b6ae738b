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

/// Spreads from values to all values that depend on them, over each op and each edge of a loop once.
class VariedMarker {
 public:
  VariedMarker(const Program& program, ValueSet& varied) : program_(program), varied_(varied) {}

  void run(const Block& block) {
    find_readers(block);
    while (!pending_.empty()) {
      const Readers& readers = readers_.at(pending_.back());
      pending_.pop_back();
      for (ValueId v : readers.becomes) mark(v);
      for (const Op* op : readers.ops)
        for (ValueId result : op->results)
          if (is_floating(program_.type(result).dtype)) mark(result);
    }
  }

 private:
  struct Readers {
    std::vector<const Op*> ops;
    std::vector<ValueId> becomes;  ///< the region arguments it initialises, the results it is yielded as
  };

  Readers& readers(ValueId v) {
    const auto [found, fresh] = readers_.try_emplace(v);
    if (fresh && varied_.contains(v)) pending_.push_back(v);
    return found->second;
  }

  void mark(ValueId v) {
    if (varied_.insert(v) && readers_.contains(v)) pending_.push_back(v);
  }

  void find_readers(const Block& block) {
    for (const Op& op : block.ops) {
      if (op.code == OpCode::kScan) {
        add_scan(op);
      } else if (op.code == OpCode::kCond) {
        for (const Block& region : op.regions) {
          find_readers(region);
          for (size_t i = 0; i < op.results.size(); ++i) readers(region.results[i]).becomes.push_back(op.results[i]);
        }
      } else if (vjp_rules::rule(op.code)) {
        for_each_use(op, [&](ValueId v) { readers(v).ops.push_back(&op); });
      }
    }
  }

  /// A carry varies if its initial value varies, or the value that a step yields for it.
  void add_scan(const Op& op) {
    ir::ScanView scan(op);
    find_readers(scan.region);
    for (size_t i = 0; i < scan.xs.size(); ++i) readers(scan.xs[i]).becomes.push_back(scan.x_args[i]);
    for (size_t i = 0; i < scan.inits.size(); ++i) {
      readers(scan.inits[i]).becomes.push_back(scan.carry_args[i]);
      readers(scan.carry_outs[i]).becomes.push_back(scan.carry_args[i]);
      readers(scan.carry_args[i]).becomes.push_back(op.results[i]);
    }
    for (size_t i = 0; i < op.results.size(); ++i) readers(scan.region.results[i]).becomes.push_back(op.results[i]);
  }

  const Program& program_;
  ValueSet& varied_;
  std::unordered_map<ValueId, Readers> readers_;
  std::vector<ValueId> pending_;
};

/// Too dear to compute twice.
bool is_expensive(OpCode code, Keep keep) {
  if (keep == Keep::kCheckpoint) return false;
  if (code == OpCode::kScan) return true;
  if (keep == Keep::kMinimal) return false;
  return ir::traits_of(code).cost == ir::Cost::kDear;
}

}  // namespace

void mark_varied(const Program& program, const Block& block, ValueSet& varied) {
  VariedMarker(program, varied).run(block);
}

std::vector<ValueId> choose_kept(const Program& program, const Block& block, const ValueSet& demanded,
                                 const ValueSet& available, const ValueSet& pinned, const ValueSet& for_derivative,
                                 Keep keep) {
  // If a view and its operand have the same size, the operand is kept: keeping the view would copy it.
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
