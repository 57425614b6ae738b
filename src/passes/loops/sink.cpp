#include "passes/loops/sink.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "passes/loops/all_steps.h"
#include "passes/loops/row_sums.h"
#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Adds;
using ir::Block;
using ir::kNoValue;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using Dims = std::vector<int64_t>;

bool is_product(OpCode code) { return info(code).op_class == OpClass::kProduct; }

/// Whether the op is a^T b, summed over all rows. Its sum over steps is the same product over the rows of all steps.
bool is_sum_over_rows(OpCode code) { return ir::traits_of(code).contracts == ir::Contracts::kLeading; }

/// op(sum of x over steps) = sum of op(x) over steps.
bool is_linear(OpCode code) { return ir::traits_of(code).is_linear; }

/// A summand of a carry that is a running sum.
struct Term {
  ValueId value;
  bool negative;
};

class Sink {
 public:
  /// Ops around the scan go to `before` and `after`. `zeros` holds the values outside that are constants of 0.
  Sink(Program& program, Block& before, Block& after, const ValueSet& zeros)
      : program_(program), after_(program, after), row_sums_(program, before, after_), zeros_(zeros) {}

  void run(Op& scan, Substitution& replaced) {
    parts_ = ScanParts(std::move(scan));
    index();
    find_sums();
    choose_sums();
    if (moves_anything()) move(replaced);
    scan = std::move(parts_).build();
  }

 private:
  const Op* definition(ValueId v) const {
    const uint32_t at = at_.get(v);
    return at == 0 ? nullptr : &parts_.ops[at - 1];
  }
  bool is_inside(ValueId v) const { return inside_.contains(v); }
  static Adds adds(const Op& op) { return ir::traits_of(op.code).adds; }
  bool is_sum(size_t carry) const { return !sums_[carry].empty(); }
  bool is_rows(ValueId v) const { return parts_.ragged && has_rows(program_.type(v), *parts_.ragged); }

  bool is_possible(const Op& op) const {
    return AllSteps::is_possible(
        program_, op, parts_.ragged, [&](ValueId v) { return is_inside(v) && !steady_.contains(v); },
        [&](ValueId v) { return !is_inside(v); });
  }

  /// In a ragged scan: a sum over the rows of a step. Behind the loop there is no such sum for each step, but there is
  /// the sum over all steps, which is the sum over all packed rows.
  bool sums_rows(const Op& op) const {
    if (!is_sum_over_rows(op.code) && !ir::is_sum(op.code)) return false;
    return !is_rows(op.results[0]) &&
           std::ranges::all_of(op.operands, [&](ValueId v) { return is_rows(v) && is_inside(v); });
  }

  void index() {
    for (size_t i = 0; i < parts_.ops.size(); ++i) {
      for (ValueId result : parts_.ops[i].results) {
        at_[result] = static_cast<uint32_t>(i) + 1;
        inside_.insert(result);
      }
      for_each_use(parts_.ops[i], [&](ValueId v) { ++uses_[v]; });
    }
    for (const auto& carry : parts_.carries) {
      ++uses_[carry.out];
      inside_.insert(carry.arg);
    }
    for (const auto& x : parts_.xs) {
      inside_.insert(x.arg);
      xs_.insert(x.arg);
    }
    for (const auto& y : parts_.ys) {
      ++uses_[y.out];
      ys_.insert(y.out);
    }
    if (!parts_.ragged) return;
    for (const Op& op : parts_.ops) {
      bool steady = op.results.size() == 1 && !is_rows(op.results[0]);
      for_each_use(op, [&](ValueId v) { steady = steady && !is_rows(v) && (!is_inside(v) || steady_.contains(v)); });
      if (steady && op.regions.empty()) steady_.insert(op.results[0]);
    }
  }

  /// The summands of a carry that is a running sum; empty for other carries. From the carry's argument to the value
  /// that it yields there must be a chain of additions and subtractions only, and nothing else may read the values of
  /// the chain.
  std::vector<Term> sum_terms(const ScanParts::Carry& carry) const {
    std::vector<Term> terms;
    if (uses_.get(carry.arg) != 1) return {};
    ValueId v = carry.out;
    while (v != carry.arg) {
      const Op* op = definition(v);
      if (!op || adds(*op) == Adds::kNo || uses_.get(v) != 1) return {};
      ValueId a = op->operands[0];
      ValueId b = op->operands[1];
      bool through_b = adds(*op) == Adds::kSum && leads_to(b, carry.arg);
      terms.push_back({through_b ? a : b, adds(*op) == Adds::kDifference});
      v = through_b ? b : a;
    }
    return terms;
  }

  /// Whether a chain of additions and subtractions leads from `v` back to the carry's argument. The chain follows left
  /// operands, unless the right operand of an addition is the argument.
  bool leads_to(ValueId v, ValueId arg) const {
    while (v != arg) {
      const Op* op = definition(v);
      if (!op || adds(*op) == Adds::kNo || uses_.get(v) != 1) return false;
      v = adds(*op) == Adds::kSum && op->operands[1] == arg ? arg : op->operands[0];
    }
    return true;
  }

  void find_sums() {
    for (const auto& carry : parts_.carries)  // a sum that each row has for itself is no sum over the packed rows
      sums_.push_back(is_rows(carry.arg) ? std::vector<Term>{} : sum_terms(carry));
  }

  /// Finds the ops that may move, since none of their readers has to stay in the loop. Of these it moves the products,
  /// and the ops computed from products.
  void choose() {
    stays_ = ValueSet();
    moved_ = ValueSet();
    for (size_t i = 0; i < parts_.carries.size(); ++i)
      if (!is_sum(i)) stays_.insert(parts_.carries[i].out);
    for (size_t i = parts_.ops.size(); i-- > 0;) {
      const Op& op = parts_.ops[i];
      bool stays = op.results.size() != 1 || !(is_possible(op) || sums_rows(op));
      for (ValueId result : op.results) stays = stays || stays_.contains(result);
      if (!stays) continue;
      for (ValueId result : op.results) stays_.insert(result);
      for_each_use(op, [&](ValueId v) { stays_.insert(v); });
    }
    for (const Op& op : parts_.ops) {
      if (!may_move(op)) continue;
      bool moves = is_product(op.code);
      for (ValueId v : op.operands) moves = moves || moved_.contains(v);
      if (moves) moved_.insert(op.results[0]);
    }
  }

  bool may_move(const Op& op) const { return op.results.size() == 1 && !stays_.contains(op.results[0]); }

  /// Chooses the sums to move. A sum that stays becomes an ordinary carry, and may then read values in the loop that
  /// other sums add up. So all sums are looked at again, in at most `kMostRounds` rounds.
  void choose_sums() {
    constexpr int kMostRounds = 8;
    choose();
    for (int round = 0; drop_bad_sums(); ++round) {
      if (round == kMostRounds)
        for (auto& terms : sums_) terms.clear();
      choose();
    }
  }

  /// Turns sums that would not gain after the loop back into ordinary carries. Returns whether there were any such
  /// sums.
  bool drop_bad_sums() {
    bool dropped = false;
    for (auto& terms : sums_) {
      bool good = std::ranges::all_of(terms, [&](const Term& term) { return sums_well(term.value); });
      if (good) continue;
      terms.clear();
      dropped = true;
    }
    return dropped;
  }

  /// Whether summing the value over the steps is cheaper after the loop than in a carry. If so, marks the ops that
  /// move.
  bool sums_well(ValueId v, int depth = 0) {
    constexpr int kDeepest = 500;  // nesting of sums, far beyond the uses of one weight in a step
    if (depth > kDeepest) return false;
    if (!is_inside(v) || xs_.contains(v) || ys_.contains(v) || moved_.contains(v)) return true;
    const Op* op = definition(v);
    if (!op || !may_move(*op)) return false;
    bool well = ir::traits_of(op->code).spreads;
    if (well)
      for (ValueId operand : op->operands) sums_well(operand, depth + 1);  // if not well, it is stacked
    if (ir::is_sum(op->code)) {
      // A sum over rows leaves the loop, where it would make the rows depend on each other. Another sum leaves only if
      // its operand is a stack already.
      const Dims& dims = op->attr<Dims>("dims");
      well = std::ranges::find(dims, 0) != dims.end() || xs_.contains(op->operands[0]) || ys_.contains(op->operands[0]);
    } else if (!well && is_linear(op->code)) {
      well = true;
      for (ValueId operand : op->operands) well = well && sums_well(operand, depth + 1);
    }
    if (well) moved_.insert(v);
    return well;
  }

  bool moves_anything() const {
    return std::ranges::any_of(sums_, [](const auto& terms) { return !terms.empty(); }) ||
           std::ranges::any_of(parts_.ys, [&](const auto& y) { return moved_.contains(y.out); });
  }

  void move(Substitution& replaced) {
    AllSteps all(after_, parts_, inside_);
    all_ = &all;
    for (const auto& x : parts_.xs) all.set(x.arg, x.stack);
    std::vector<ScanParts::Y> moved_ys;
    for (const auto& y : parts_.ys) {
      if (!moved_.contains(y.out)) continue;
      moved_ys.push_back(y);
      ys_.erase(y.out);
    }
    std::erase_if(parts_.ys, [&](const auto& y) { return moved_.contains(y.out); });
    for (const auto& y : parts_.ys) all.set(y.out, y.stack);
    find_concats();
    for (const auto& y : moved_ys) replaced.set(y.stack, stack(y.out));
    for (size_t i = 0; i < sums_.size(); ++i)
      if (is_sum(i)) replaced.set(parts_.carries[i].result, total(i));
    size_t next = 0;
    std::erase_if(parts_.carries, [&](const auto&) { return is_sum(next++); });
    row_sums_.add_to(parts_);
    drop_dead_ops(parts_);
    all_ = nullptr;
  }

  /// Finds the concatenations that will be stacked. The stack of one of their parts is then a slice of the stack of the
  /// concatenation.
  void find_concats() {
    ValueSet stacked;
    for (const auto& y : parts_.ys) stacked.insert(y.out);
    for (const Op& op : parts_.ops)
      if (op.results.size() == 1 && moved_.contains(op.results[0]))
        for (ValueId v : op.operands) {
          stacked.insert(v);
          if (!ir::is_sum(op.code)) read_behind_.insert(v);
        }
    for (const Op& op : parts_.ops) {
      if (!ir::is_join(op.code)) continue;
      concats_.try_emplace({op.operands, op.attr<int64_t>("dim")}, op.results[0]);
      if (moved_.contains(op.results[0]) || !stacked.contains(op.results[0])) continue;
      if (may_move(op) && !ys_.contains(op.results[0]))
        continue;  // needed behind the loop only, so it is concatenated there
      ir::Dim start(0);
      for (ValueId part : op.operands) {
        const ir::Dim limit = start + program_.type(part).shape[static_cast<size_t>(op.attr<int64_t>("dim"))];
        part_of_.try_emplace(part, Part{op.results[0], op.attr<int64_t>("dim") + shift(part), start, limit});
        start = limit;
      }
    }
  }

  /// By how much the dims of a value shift in its stack: f32[B,8] is stacked as f32[T,B,8], but rows as f32[N,8].
  int64_t shift(ValueId v) const { return is_rows(v) ? 0 : 1; }

  struct Part {
    ValueId whole;
    int64_t dim;
    ir::Dim start, limit;
  };
  const Part* part_of(ValueId v) const {
    auto it = part_of_.find(v);
    return it == part_of_.end() ? nullptr : &it->second;
  }

  bool widens(const Op& op) const {
    return ir::is_conversion(op.code) &&
           size_of(program_.type(op.operands[0]).dtype) < size_of(program_.type(op.results[0]).dtype);
  }

  /// Whether the stack of the op's result should be computed behind the loop, from stacks that exist or are smaller.
  bool recompute_outside(const Op& op) const {
    auto there = [&](ValueId v) { return !is_inside(v) || all_->has(v); };
    if (widens(op)) return true;  // the stack of the narrow value is smaller
    if (ir::is_constant(op.code)) return true;
    if (ir::is_repeated(op.code))
      return there(op.operands[0]) ||
             estimated_bytes(program_.type(op.operands[0])) < estimated_bytes(program_.type(op.results[0]));
    return may_move(op) && (ir::is_join(op.code) || std::ranges::all_of(op.operands, there));
  }

  /// The stack of a value of the region or from outside. Not recursive, since chains of ops may be of any length.
  ValueId stack(ValueId wanted) {
    std::vector<ValueId> pending = {wanted};
    while (!pending.empty()) {
      ValueId v = pending.back();
      const Op* op = definition(v);
      if (!is_inside(v) || all_->has(v)) {
        pending.pop_back();
      } else if (op && (!parts_.ragged || is_possible(*op)) && (moved_.contains(v) || recompute_outside(*op))) {
        size_t before = pending.size();
        for (size_t i = op->operands.size(); i-- > 0;)
          if (ValueId operand = op->operands[i]; is_inside(operand) && !all_->has(operand)) pending.push_back(operand);
        if (pending.size() == before) all_->emit(*op);
      } else if (const Part* part = part_of(v); part && all_->has(part->whole)) {
        all_->set(v, after_.slice(all_->stack(part->whole), part->dim, part->start, part->limit));
      } else if (part) {
        pending.push_back(part->whole);
      } else {
        all_->set(v, parts_.stack_of(program_, v));
      }
    }
    return all_->stack(wanted);
  }

  /// The dims of `v`'s stack to sum over, for a sum over `dims` in each step and then over all steps.
  Dims summed_dims(ValueId v, const Dims& dims) const {
    if (is_rows(v)) return dims;
    Dims all = {0};
    for (int64_t dim : dims) all.push_back(dim + 1);
    return all;
  }

  /// Whether only a sum over rows would read the value's stack. Not in a ragged scan, where the packed rows are summed.
  bool needs_stack(ValueId v) const {
    if (parts_.ragged || !is_floating(program_.type(v).dtype) || !is_inside(v) || all_->has(v) || part_of(v))
      return false;
    const Op* op = definition(v);
    if (!op || moved_.contains(v) || (recompute_outside(*op) && !widens(*op))) return false;
    return !read_behind_.contains(v);
  }

  /// Emits the sum over all steps of a value of the region.
  ValueId sum(ValueId v) {
    const Op* op = definition(v);
    if (!op || !moved_.contains(v)) return after_.reduce_sum(stack(v), {0});
    if (is_sum_over_rows(op->code)) {
      ValueId a = stack(op->operands[0]);
      return after_.outer(a, stack(op->operands[1]));
    }
    if (ir::is_sum(op->code)) {
      const ValueId summed = op->operands[0];
      const auto& dims = op->attr<Dims>("dims");
      if (needs_stack(summed)) return row_sums_.sum(summed, dims);
      return after_.reduce_sum(stack(summed), summed_dims(summed, dims));
    }
    if (const ValueId weights = ir::weights_of(*op); weights != kNoValue && !is_inside(weights))
      return after_.emit(op->code, {sum(op->operands[0]), weights}, op->attrs);
    if (ir::is_join(op->code))
      if (ValueId whole = sum_of_concat(*op); whole != kNoValue) return whole;
    if (!is_linear(op->code)) return after_.reduce_sum(stack(v), {0});
    std::vector<ValueId> operands;
    for (ValueId operand : op->operands) operands.push_back(sum(operand));
    ir::Type declared = program_.type(v);
    return after_.emit(op->code, std::move(operands), op->attrs,
                       ir::traits_of(op->code).declares ? &declared : nullptr);
  }

  /// A concatenation of sums, such as the gradient of a bias gate by gate, as one sum of a concatenation that the loop
  /// has made of the same parts; kNoValue if there is none.
  ValueId sum_of_concat(const Op& op) {
    std::vector<ValueId> parts;
    Dims dims;
    for (ValueId v : op.operands) {
      const Op* part = definition(v);
      if (!part || !ir::is_sum(part->code) || !moved_.contains(v)) return kNoValue;
      if (!parts.empty() && part->attr<Dims>("dims") != dims) return kNoValue;
      dims = part->attr<Dims>("dims");
      parts.push_back(part->operands[0]);
    }
    int64_t dim = op.attr<int64_t>("dim");  // counted as a dim of the summed values
    for (int64_t reduced : dims)
      if (reduced <= dim) ++dim;
    auto whole = concats_.find({parts, dim});
    if (whole == concats_.end()) return kNoValue;
    return after_.reduce_sum(stack(whole->second), summed_dims(whole->second, dims));
  }

  /// The value of the carry after the last step.
  ValueId total(size_t carry) {
    ValueId result = zeros_.contains(parts_.carries[carry].init) ? kNoValue : parts_.carries[carry].init;
    for (size_t i = sums_[carry].size(); i-- > 0;) {
      const Term& term = sums_[carry][i];
      ValueId value = sum(term.value);
      if (result == kNoValue)
        result = term.negative ? after_.neg(value) : value;
      else
        result = term.negative ? after_.sub(result, value) : after_.add(result, value);
    }
    return result;
  }

  Program& program_;
  ir::Builder after_;
  RowSums row_sums_;
  const ValueSet& zeros_;
  ScanParts parts_;
  ValueMap<uint32_t> at_;    ///< value: its op's index in parts_.ops plus one, or 0
  ValueMap<uint32_t> uses_;  ///< value: how often the region uses it
  ValueSet inside_;
  std::vector<std::vector<Term>> sums_;  ///< carry: its terms, the last first; none for an ordinary carry
  ValueSet steady_;                      ///< in a ragged region: results without rows that are the same in every step
  ValueSet stays_, moved_;
  ValueSet read_behind_;  ///< values that moved ops read, other than sums over rows
  ValueSet xs_, ys_;      ///< the region's arguments for xs; the values that it yields as ys
  std::unordered_map<ValueId, Part> part_of_;
  std::map<std::pair<std::vector<ValueId>, int64_t>, ValueId> concats_;  ///< their concatenation along this dim
  AllSteps* all_ = nullptr;
};

void sink_block(Program& program, Block& block, Substitution& replaced, ValueSet& zeros) {
  Block out;
  for (Op& op : block.ops) {
    substitute(op, replaced);
    if (ir::constant_value(op) == 0) zeros.insert(op.results[0]);
    if (ir::is_repeated(op.code) && zeros.contains(op.operands[0])) zeros.insert(op.results[0]);
    if (op.code != OpCode::kScan) {
      for (Block& region : op.regions) sink_block(program, region, replaced, zeros);
      out.ops.push_back(std::move(op));
      continue;
    }
    sink_block(program, op.regions[0], replaced, zeros);
    if (op.attr_or(ir::kCheckpoint, false)) {
      out.ops.push_back(std::move(op));
      continue;
    }
    Block before, after;
    Sink(program, before, after, zeros).run(op, replaced);
    for (Op& zero : before.ops) out.ops.push_back(std::move(zero));
    out.ops.push_back(std::move(op));
    for (Op& moved : after.ops) out.ops.push_back(std::move(moved));
  }
  block.ops = std::move(out.ops);
  for (ValueId& v : block.results) v = replaced(v);
}

}  // namespace

void sink(Program& program) {
  Substitution replaced;
  ValueSet zeros;
  sink_block(program, program.body, replaced, zeros);
}

}  // namespace weft::passes
