#include "passes/simplification/dce.h"

#include <algorithm>

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

class Dce {
 public:
  void run(Block& body) {
    for (ValueId v : body.results) live_.insert(v);
    mark(body.ops);
    sweep(body);
  }

 private:
  bool is_live(ValueId v) const { return live_.contains(v); }
  bool is_live(const Op& op) const {
    return std::ranges::any_of(op.results, [&](ValueId v) { return is_live(v); });
  }

  void mark(const std::vector<Op>& ops) {
    for (size_t i = ops.size(); i-- > 0;) {
      const Op& op = ops[i];
      if (!is_live(op)) continue;
      if (op.code == OpCode::kScan)
        mark_scan(op);
      else if (op.code == OpCode::kCond)
        mark_cond(op);
      else if (op.code == OpCode::kWhile)
        mark_while(op);
      else
        for (ValueId v : op.operands) live_.insert(v);
    }
  }

  /// A carry is live if its last value is read, or if a step reads it for a live value.
  void mark_scan(const Op& op) {
    const Block& region = op.regions[0];
    auto carries = static_cast<size_t>(op.attr<int64_t>("carries"));
    for (size_t i = 0; i < op.results.size(); ++i)
      if (is_live(op.results[i])) live_.insert(region.results[i]);
    bool changed = true;
    while (changed) {
      mark(region.ops);
      changed = false;
      for (size_t i = 0; i < carries; ++i)
        if (is_live(region.args[i])) changed = live_.insert(region.results[i]) || changed;
    }
    if (ir::ScanView view(op); view.ragged) live_.insert(view.ragged->batch_sizes);
    for (size_t i = 0; i < region.args.size(); ++i)
      if (is_live(region.args[i]) || (i < carries && is_live(op.results[i]))) live_.insert(op.operands[i]);
  }

  void mark_cond(const Op& op) {
    live_.insert(op.operands[0]);
    for (const Block& region : op.regions) {
      for (size_t i = 0; i < op.results.size(); ++i)
        if (is_live(op.results[i])) live_.insert(region.results[i]);
      mark(region.ops);
    }
  }

  bool is_live_carry(const Op& op, size_t i) const {
    return is_live(op.results[i]) || is_live(op.regions[0].args[i]) || is_live(op.regions[1].args[i]);
  }

  /// A carry is live if its last value is read, or if the condition or a live op of the body reads it.
  void mark_while(const Op& op) {
    const Block& body = op.regions[1];
    live_.insert(op.regions[0].results[0]);
    mark(op.regions[0].ops);
    bool changed = true;
    while (changed) {
      mark(body.ops);
      changed = false;
      for (size_t i = 0; i < op.results.size(); ++i)
        if (is_live_carry(op, i)) changed = live_.insert(body.results[i]) || changed;
    }
    for (size_t i = 0; i < op.results.size(); ++i)
      if (is_live_carry(op, i)) live_.insert(op.operands[i]);
  }

  void sweep(Block& block) {
    std::erase_if(block.ops, [&](const Op& op) { return !is_live(op); });
    for (Op& op : block.ops)
      if (op.code == OpCode::kScan)
        sweep_scan(op);
      else if (!op.regions.empty())
        sweep_control(op);
  }

  /// Removes the dead results of a cond, and the dead carries of a while.
  void sweep_control(Op& op) {
    bool loop = op.code == OpCode::kWhile;
    std::vector<bool> dead;
    for (size_t i = 0; i < op.results.size(); ++i)
      dead.push_back(loop ? !is_live_carry(op, i) : !is_live(op.results[i]));
    auto shrink = [&](std::vector<ValueId>& list) {
      size_t next = 0;
      std::erase_if(list, [&](ValueId) { return dead[next++]; });
    };
    for (Block& region : op.regions) {
      sweep(region);
      if (loop) shrink(region.args);
      if (!loop || &region == &op.regions[1]) shrink(region.results);
    }
    if (loop) shrink(op.operands);
    shrink(op.results);
  }

  void sweep_scan(Op& op) {
    sweep(op.regions[0]);
    ScanParts parts(std::move(op));
    std::erase_if(parts.carries, [&](const auto& carry) { return !is_live(carry.arg) && !is_live(carry.result); });
    std::erase_if(parts.xs, [&](const auto& x) { return !is_live(x.arg); });
    std::erase_if(parts.ys, [&](const auto& y) { return !is_live(y.stack); });
    op = std::move(parts).build();
  }

  ValueSet live_;
};

}  // namespace

void dce(ir::Program& program) { Dce().run(program.body); }

}  // namespace weft::passes
