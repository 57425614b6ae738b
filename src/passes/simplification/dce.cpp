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
    find_makers(body);
    for (ValueId v : body.results) mark(v);
    while (!pending_.empty()) {
      const ValueId v = pending_.back();
      pending_.pop_back();
      if (const Maker maker = makers_.get(v); maker.op) mark_needs(*maker.op, maker.index, v);
    }
    sweep(body);
  }

 private:
  /// The op that a value is a result of, or to whose region it is an argument.
  struct Maker {
    const Op* op = nullptr;
    size_t index = 0;
  };

  bool is_live(ValueId v) const { return live_.contains(v); }
  bool is_live(const Op& op) const {
    return std::ranges::any_of(op.results, [&](ValueId v) { return is_live(v); });
  }

  void find_makers(const Block& block) {
    for (const Op& op : block.ops) {
      for (size_t i = 0; i < op.results.size(); ++i) makers_[op.results[i]] = {&op, i};
      for (const Block& region : op.regions) {
        for (size_t i = 0; i < region.args.size(); ++i) makers_[region.args[i]] = {&op, i};
        find_makers(region);
      }
    }
  }

  void mark(ValueId v) {
    if (live_.insert(v)) pending_.push_back(v);
  }

  /// Marks what a result of the op, or an argument of its regions, needs.
  void mark_needs(const Op& op, size_t index, ValueId v) {
    if (op.code == OpCode::kScan)
      mark_scan(op, index, op.regions[0].args.size() > index && op.regions[0].args[index] == v);
    else if (op.code == OpCode::kCond)
      mark_cond(op, index);
    else if (op.code == OpCode::kWhile)
      mark_while(op, index);
    else if (done_.insert(op.results[0]))
      for (ValueId operand : op.operands) mark(operand);
  }

  /// A carry is live if its last value is read, or if a step reads it for a live value.
  void mark_scan(const Op& op, size_t index, bool is_argument) {
    const Block& region = op.regions[0];
    const bool is_carry = index < static_cast<size_t>(op.attr<int64_t>("carries"));
    if (!is_argument || is_carry) mark(region.results[index]);
    if (is_argument || is_carry) mark(op.operands[index]);
    if (done_.insert(op.results[0]))
      if (ir::ScanView view(op); view.ragged) mark(view.ragged->batch_sizes);
  }

  void mark_cond(const Op& op, size_t index) {
    mark(op.operands[0]);
    for (const Block& region : op.regions) mark(region.results[index]);
  }

  bool is_live_carry(const Op& op, size_t i) const {
    return is_live(op.results[i]) || is_live(op.regions[0].args[i]) || is_live(op.regions[1].args[i]);
  }

  /// A carry is live if its last value is read, or if the condition or a live op of the body reads it.
  void mark_while(const Op& op, size_t index) {
    mark(op.regions[0].results[0]);
    mark(op.regions[1].results[index]);
    mark(op.operands[index]);
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
  ValueSet done_;  ///< by first result: the ops whose other needs are marked
  std::vector<ValueId> pending_;
  ValueMap<Maker> makers_;
};

}  // namespace

void dce(ir::Program& program) { Dce().run(program.body); }

}  // namespace weft::passes
