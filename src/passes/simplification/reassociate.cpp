#include "passes/simplification/reassociate.h"

#include <algorithm>
#include <span>

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

/// One scan's region.
class Separate {
 public:
  Separate(Program& program, Block& region, int64_t carries)
      : program_(program), region_(region), builder_(program, out_) {
    for_each_use(region, [&](ValueId v) { ++uses_[v]; });
    for (int64_t i = 0; i < carries; ++i) loop_.insert(region.args[static_cast<size_t>(i)]);
    for (size_t i = static_cast<size_t>(carries); i < region.args.size(); ++i) step_.insert(region.args[i]);
    inside_ = defined_in(region);
    for (const Op& op : region.ops)
      if (ir::is_addition(op.code))
        for (ValueId v : op.operands)
          if (uses(v) == 1) inner_.insert(v);
  }

  void run() {
    for (Op& op : region_.ops) {
      for (ValueId& v : op.operands) v = replaced_(v);
      for (Block& nested : op.regions) substitute(nested, replaced_);
      if (ir::weights_of(op) != ir::kNoValue && split(op)) continue;
      if (ir::is_addition(op.code) && regroup(op)) continue;
      push(std::move(op));
    }
    for (ValueId& v : region_.results) v = replaced_(v);
    drop_unread();
  }

 private:
  /// Removes the concatenations and sums that were taken apart. As readers they would keep hoist from moving their
  /// operands.
  void drop_unread() {
    ValueSet read;
    for (ValueId v : region_.results) read.insert(v);
    region_.ops.clear();
    for (size_t i = out_.ops.size(); i-- > 0;) {
      Op& op = out_.ops[i];
      if (std::ranges::none_of(op.results, [&](ValueId v) { return read.contains(v); })) continue;
      for_each_use(op, [&](ValueId v) { read.insert(v); });
      region_.ops.push_back(std::move(op));
    }
    std::ranges::reverse(region_.ops);
  }

  bool is_loop(ValueId v) const { return loop_.contains(v); }

  /// How often the region reads a value. A value made here has one reader.
  uint32_t uses(ValueId v) const {
    const uint32_t known = uses_.get(v);
    return known == 0 ? 1 : known;
  }

  void push(Op op) {
    bool loop = false;
    bool step = false;
    for_each_use(op, [&](ValueId v) {
      loop = loop || is_loop(v);
      step = step || step_.contains(v);
    });
    for (ValueId result : op.results) {
      if (loop) loop_.insert(result);
      if (step) step_.insert(result);
      at_[result] = static_cast<uint32_t>(out_.ops.size()) + 1;
    }
    out_.ops.push_back(std::move(op));
  }

  /// The op that computes the value, if it is in the region and of a code of which `is_wanted` is true.
  const Op* definition(ValueId v, bool (*is_wanted)(OpCode)) const {
    const uint32_t at = at_.get(v);
    if (at == 0) return nullptr;
    const Op& op = out_.ops[at - 1];
    return is_wanted(op.code) ? &op : nullptr;
  }

  /// Enters the op that the builder has just made, like any other.
  ValueId entered(ValueId result) {
    Op op = std::move(out_.ops.back());
    out_.ops.pop_back();
    push(std::move(op));
    return result;
  }

  /// A product with a concatenation is the sum of the products with its parts.
  bool split(const Op& op) {
    const Op* concat = definition(op.operands[0], &ir::is_join);
    ValueId weights = op.operands[1];
    int64_t last = program_.type(op.operands[0]).rank() - 1;
    if (!concat || concat->attr<int64_t>("dim") != last || inside_.contains(weights)) return false;
    std::vector<ValueId> parts = concat->operands;
    bool any = std::ranges::any_of(parts, [&](ValueId v) { return is_loop(v); });
    bool all = std::ranges::all_of(parts, [&](ValueId v) { return is_loop(v); });
    if (!any || all) return false;
    if (!std::ranges::all_of(parts, [&](ValueId v) { return program_.type(v).shape.back().is_constant(); }))
      return false;
    bool transposed = op.attr_or("transpose_b", false);
    ValueId sum = ir::kNoValue;
    int64_t start = 0;
    for (size_t i = 0; i < parts.size();) {
      std::vector<ValueId> group;  // neighbours of one kind: all depend on a carry, or none does
      int64_t size = 0;
      bool loop = is_loop(parts[i]);
      for (; i < parts.size() && is_loop(parts[i]) == loop; ++i) {
        group.push_back(parts[i]);
        size += program_.type(parts[i]).shape.back().constant();
      }
      ValueId a = group.size() == 1 ? group[0] : entered(builder_.concat(group, last));
      ValueId b = entered(builder_.slice(weights, transposed ? 1 : 0, start, start + size));
      ValueId product = entered(builder_.matmul(a, b, transposed));
      sum = sum == ir::kNoValue ? product : entered(builder_.add(sum, product));
      start += size;
    }
    uses_[sum] = uses(op.results[0]);
    replaced_.set(op.results[0], sum);
    return true;
  }

  /// Collects the summands of a value, through sums that have no other reader.
  void summands(ValueId v, std::vector<ValueId>& result) const {
    std::vector<ValueId> pending = {v};
    while (!pending.empty()) {
      ValueId each = pending.back();
      pending.pop_back();
      const Op* op = definition(each, &ir::is_addition);
      if (op && uses(each) == 1) {
        pending.push_back(op->operands[1]);
        pending.push_back(op->operands[0]);
      } else {
        result.push_back(each);
      }
    }
  }

  /// A sum of broadcasts with equal dims as the broadcast of the sum. hoist then moves the sum before its repetition.
  ValueId sum_of_broadcasts(std::span<const ValueId> values) {
    std::vector<ValueId> parts;
    const Op* first = values.empty() ? nullptr : definition(values[0], &ir::is_repeated);
    if (!first) return ir::kNoValue;
    auto dims = first->attr<std::vector<int64_t>>("dims");
    ir::Type from = program_.type(first->operands[0]);
    ir::Type to = program_.type(values[0]);
    for (ValueId v : values) {
      const Op* op = definition(v, &ir::is_repeated);
      if (!op || op->attr<std::vector<int64_t>>("dims") != dims || program_.type(op->operands[0]) != from)
        return ir::kNoValue;
      parts.push_back(op->operands[0]);
    }
    return parts.size() < 2 ? values[0] : entered(builder_.broadcast(sum_of(parts), to.shape, std::move(dims)));
  }

  /// The sum of values; kNoValue for none.
  ValueId sum_of(std::span<const ValueId> values) {
    ValueId sum = ir::kNoValue;
    for (ValueId v : values) sum = sum == ir::kNoValue ? v : entered(builder_.add(sum, v));
    return sum;
  }

  /// Adds the summands of a sum in order: first those that are the same in every step, then others that depend on no
  /// carry, then the rest. Looks at each sum once, at its last addition.
  bool regroup(const Op& op) {
    if (inner_.contains(op.results[0])) return false;
    std::vector<ValueId> all;
    summands(op.operands[0], all);
    summands(op.operands[1], all);
    std::span<ValueId> in_loop = std::ranges::stable_partition(all, [&](ValueId v) { return !is_loop(v); });
    std::span<ValueId> free(all.begin(), all.end() - static_cast<int64_t>(in_loop.size()));
    if (free.size() < 2 || in_loop.empty()) return false;
    std::span<ValueId> same = std::ranges::stable_partition(free, [&](ValueId v) { return step_.contains(v); });
    std::vector<ValueId> sums;
    ValueId steady = sum_of_broadcasts(same);
    if (steady == ir::kNoValue) steady = sum_of(same);
    for (ValueId part : {sum_of(free.first(free.size() - same.size())), steady})
      if (part != ir::kNoValue) sums.push_back(part);
    sums.insert(sums.end(), in_loop.begin(), in_loop.end());
    ValueId sum = sum_of(sums);
    uses_[sum] = uses(op.results[0]);
    replaced_.set(op.results[0], sum);
    return true;
  }

  Program& program_;
  Block& region_;
  Block out_;
  ir::Builder builder_;
  ValueMap<uint32_t> uses_;  ///< value: how often the region reads it
  ValueSet loop_;            ///< what depends on a carry
  ValueSet step_;            ///< what depends on xs
  ValueSet inside_;          ///< what the region defines
  ValueSet inner_;           ///< operands of additions that nothing else reads
  ValueMap<uint32_t> at_;    ///< value: its op's index in out_ plus one, or 0
  Substitution replaced_;
};

void reassociate_block(Program& program, Block& block) {
  for (Op& op : block.ops) {
    for (Block& region : op.regions) reassociate_block(program, region);
    if (op.code != OpCode::kScan) continue;
    Separate(program, op.regions[0], op.attr<int64_t>("carries")).run();
  }
}

}  // namespace

void reassociate(Program& program) { reassociate_block(program, program.body); }

}  // namespace weft::passes
