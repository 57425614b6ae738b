#include "passes/loops/merge_stacks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using Dims = std::vector<int64_t>;

/// Columns start..limit-1 of the merged concatenation. They are the columns from `at` on of one of the two original
/// concatenations.
struct StackRange {
  int64_t at, start, limit;
};

/// A concatenation in the region that is a y of the scan, and its stack.
struct Stack {
  size_t y;
  ValueId out, stack;
  std::vector<ValueId> parts;
  size_t at;      ///< where in the region it stands
  size_t reader;  ///< the first op of the region that reads it, or the number of ops
  bool merged = false;
};

/// A block's ops while it is edited. Ops are taken out, and put in front of others, but places stay those of the
/// original block.
class EditedOps {
 public:
  explicit EditedOps(std::vector<Op>& ops) : ops_(ops), gone_(ops.size()) {}

  Op& at(size_t place) { return ops_[place]; }
  std::vector<Op>& before(size_t place) { return before_[place]; }
  void take_out(size_t place) { gone_[place] = true; }
  bool is_gone(size_t place) const { return gone_[place]; }

  /// Takes out the op that makes `result`, which stands at the place or was put in front of it.
  void take_out(size_t place, ValueId result) {
    if (place < ops_.size() && std::ranges::count(ops_[place].results, result) != 0) return take_out(place);
    std::erase_if(before_[place], [&](const Op& op) { return op.results[0] == result; });
  }

  /// Calls f for the ops that were put in front of the place, and for the op at the place unless it was taken out.
  template <typename F>
  void for_each_at(size_t place, F&& f) const {
    if (auto found = before_.find(place); found != before_.end())
      for (const Op& op : found->second) f(op);
    if (!gone_[place]) f(ops_[place]);
  }

  /// Writes the block anew, with values replaced as `replaced` says.
  void finish(const Substitution& replaced) {
    std::vector<Op> result;
    for (size_t i = 0; i <= ops_.size(); ++i) {
      if (auto found = before_.find(i); found != before_.end())
        std::ranges::move(found->second, std::back_inserter(result));
      if (i < ops_.size() && !gone_[i]) result.push_back(std::move(ops_[i]));
    }
    for (Op& op : result) substitute(op, replaced);
    ops_ = std::move(result);
  }

 private:
  std::vector<Op>& ops_;
  std::vector<bool> gone_;
  std::unordered_map<size_t, std::vector<Op>> before_;
};

/// The stacks of a scan. Finds the stacks that share columns.
class StacksOfScan {
 public:
  StacksOfScan(const Program& program, const Op& scan) : program_(program) {
    const Block& region = scan.regions[0];
    find_stacks(scan);
    if (all.size() < 2) return;
    for (size_t i = 0; i < region.ops.size(); ++i) {
      for (ValueId result : region.ops[i].results) defined_[result] = static_cast<uint32_t>(i) + 1;
      for_each_use(region.ops[i], [&](ValueId v) {
        if (uint32_t& reader = reader_[v]; reader == 0) reader = static_cast<uint32_t>(i) + 1;
      });
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (const uint32_t reader = reader_.get(all[i].out); reader != 0) all[i].reader = reader - 1;
      for (ValueId part : all[i].parts) with_part_[part].push_back(i);
    }
  }

  std::vector<Stack> all;

  /// The unmerged stacks that share a part with this one, in order; the first `kMost` where there are very many.
  std::vector<size_t> related(size_t stack) const {
    constexpr size_t kMost = 64;
    std::vector<size_t> found;
    for (ValueId part : all[stack].parts) {
      const std::vector<size_t>& others = with_part_.at(part);
      found.insert(found.end(), others.begin(), others.begin() + static_cast<int64_t>(std::min(others.size(), kMost)));
    }
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    std::erase_if(found, [&](size_t other) { return other == stack || all[other].merged; });
    if (found.size() > kMost) found.resize(kMost);
    return found;
  }

  /// Where in the region a concatenation of both can stand: behind all parts, before the first reader of `second`. None
  /// if the region reads `first`.
  std::optional<size_t> place_for(const Stack& first, const Stack& second) const {
    if (reader_.get(first.out) != 0) return std::nullopt;
    size_t place = 0;
    for (const Stack* stack : {&first, &second})
      for (ValueId part : stack->parts) place = std::max<size_t>(place, defined_.get(part));
    if (place > second.reader) return std::nullopt;
    return place;
  }

  /// Makes `second` stand for both.
  void merge(size_t first, size_t second, size_t place, ValueId out, ValueId stack, std::vector<ValueId> parts) {
    all[first].merged = true;
    for (ValueId part : all[first].parts) with_part_[part].push_back(second);
    all[second] = {all[second].y, out, stack, std::move(parts), place, place};
    reader_[out] = static_cast<uint32_t>(place) + 1;
  }

 private:
  int64_t last_dim(ValueId v) const { return program_.type(v).rank() - 1; }

  /// Finds the ys that are concatenations of columns, of types that the kernels after the loop can read.
  void find_stacks(const Op& scan) {
    const Block& region = scan.regions[0];
    ValueMap<uint32_t> yielded, concats;
    for (ValueId out : region.results) ++yielded[out];
    for (size_t i = 0; i < region.ops.size(); ++i)
      if (ir::is_join(region.ops[i].code)) concats[region.ops[i].results[0]] = static_cast<uint32_t>(i) + 1;
    for (auto y = static_cast<size_t>(scan.attr<int64_t>("carries")); y < region.results.size(); ++y) {
      const ValueId out = region.results[y];
      const DType dtype = program_.type(out).dtype;
      const uint32_t made = concats.get(out);
      if (made == 0 || (dtype != DType::kF32 && dtype != DType::kF64) || yielded.get(out) != 1) continue;
      const Op& op = region.ops[made - 1];
      if (op.attr<int64_t>("dim") != last_dim(out)) continue;
      auto has_columns = [&](ValueId v) {
        const ir::Dim& columns = program_.type(v).shape.back();
        return columns.is_constant() && columns.constant() > 0;
      };
      std::vector<ValueId> sorted = op.operands;
      std::ranges::sort(sorted);
      if (std::ranges::all_of(op.operands, has_columns) && std::ranges::adjacent_find(sorted) == sorted.end())
        all.push_back({y, out, scan.results[y], op.operands, made - 1, region.ops.size()});
    }
  }

  const Program& program_;
  ValueMap<uint32_t> defined_, reader_;  ///< places in the region plus one
  std::unordered_map<ValueId, std::vector<size_t>> with_part_;
};

class MergeStacks {
 public:
  explicit MergeStacks(Program& program) : program_(program), body_(program.body), edited_(body_.ops) {}

  void run() {
    for (size_t i = 0; i < body_.ops.size(); ++i)
      if (body_.ops[i].code == OpCode::kScan) merge_in(i);
    if (!changed_) return;
    edited_.finish(replaced_);
    for (ValueId& v : body_.results) v = replaced_(v);
  }

 private:
  int64_t columns(ValueId v) const { return program_.type(v).shape.back().constant(); }
  int64_t last_dim(ValueId v) const { return program_.type(v).rank() - 1; }

  /// Merges pairs of the scan's stacks until no pair is left. Tries the stacks in order, and again each stack that
  /// shares a part with a merged one.
  void merge_in(size_t scan) {
    StacksOfScan stacks(program_, body_.ops[scan]);
    if (stacks.all.size() < 2) return;
    find_readers();
    Block& region = body_.ops[scan].regions[0];
    EditedOps ops(region.ops);
    Substitution inside;
    std::set<size_t> untried;
    for (size_t i = 0; i < stacks.all.size(); ++i) untried.insert(i);
    std::set<size_t> merged;  // ys that are no more
    while (!untried.empty()) {
      const size_t first = *untried.begin();
      untried.erase(untried.begin());
      if (stacks.all[first].merged || !is_read_in_ranges(stacks.all[first])) continue;
      for (size_t second : stacks.related(first)) {
        const std::optional<size_t> place = stacks.place_for(stacks.all[first], stacks.all[second]);
        if (!place || !is_read_here(stacks.all[second].stack)) continue;
        merged.insert(stacks.all[first].y);
        join(scan, stacks, first, second, *place, ops, inside);
        for (size_t other : stacks.related(second)) untried.insert(other);
        break;
      }
    }
    if (merged.empty()) return;
    changed_ = true;
    ops.finish(inside);
    for (std::vector<ValueId>* results : {&region.results, &body_.ops[scan].results}) {
      size_t y = 0;
      std::erase_if(*results, [&](ValueId) { return merged.contains(y++); });
    }
  }

  /// Finds which ops of the body read the results of scans, and which values regions read or the body returns.
  void find_readers() {
    if (found_readers_) return;
    found_readers_ = true;
    ValueSet stacks;
    for (ValueId v : body_.results) elsewhere_.insert(v);
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      const Op& op = body_.ops[i];
      if (op.code == OpCode::kScan)
        for (ValueId result : op.results) stacks.insert(result);
      if (ir::is_conversion(op.code)) cast_of_.emplace(op.results[0], op.operands[0]);
      if (!op.regions.empty()) for_each_use(op, [&](ValueId v) { elsewhere_.insert(v); });
      for (ValueId v : op.operands)
        if (stacks.contains(v) && (readers_[v].empty() || readers_[v].back() != i)) readers_[v].push_back(i);
    }
  }

  /// Whether only ops of the body read the value: it is not returned, and no region reads it.
  bool is_read_here(ValueId v) const { return !elsewhere_.contains(v); }

  bool is_read_in_ranges(const Stack& stack) {
    bool ranges = is_read_here(stack.stack);
    for (size_t reader : readers_[stack.stack])
      edited_.for_each_at(reader, [&](const Op& op) {
        const bool reads = std::ranges::find(op.operands, stack.stack) != op.operands.end();
        ranges = ranges && (!reads || reads_ranges(op, stack.stack));
      });
    return ranges;
  }

  bool sums_rows(const Op& op) const {
    if (!ir::is_sum(op.code)) return false;
    const Dims& dims = op.attr<Dims>("dims");
    int64_t last = last_dim(op.operands[0]);
    return static_cast<int64_t>(dims.size()) == last && std::ranges::find(dims, last) == dims.end();
  }

  bool reads_ranges(const Op& op, ValueId stack) const {
    if (ir::traits_of(op.code).contracts == ir::Contracts::kLeading) return true;
    if (const ValueId weights = ir::weights_of(op); weights != ir::kNoValue) return weights != stack;
    return sums_rows(op);
  }

  void join(size_t scan, StacksOfScan& stacks, size_t first_index, size_t second_index, size_t place, EditedOps& ops,
            Substitution& inside) {
    const Stack first = stacks.all[first_index], second = stacks.all[second_index];
    std::vector<ValueId> parts;
    for (ValueId v : first.parts)
      if (std::ranges::find(second.parts, v) == second.parts.end()) parts.push_back(v);
    parts.insert(parts.end(), second.parts.begin(), second.parts.end());
    std::vector<StackRange> of_first = ranges(first.parts, parts);
    std::vector<StackRange> of_second = ranges(second.parts, parts);

    Block holder;
    ir::Builder builder(program_, holder);
    ValueId whole = builder.concat(parts, last_dim(second.out));
    ValueId slice = builder.slice(whole, last_dim(whole), of_second[0].start, of_second[0].limit);
    inside.set(second.out, slice);
    ops.take_out(first.at, first.out);
    ops.take_out(second.at, second.out);
    std::vector<Op>& before = ops.before(place);
    before.insert(before.begin(), std::make_move_iterator(holder.ops.begin()),
                  std::make_move_iterator(holder.ops.end()));
    body_.ops[scan].regions[0].results[second.y] = whole;
    ir::Type type = program_.type(second.stack);
    type.shape.back() = program_.type(whole).shape.back();
    ValueId stack = program_.new_value(std::move(type));
    body_.ops[scan].results[second.y] = stack;
    stacks.merge(first_index, second_index, place, whole, stack, std::move(parts));
    rewrite_readers(stack, {{first.stack, of_first}, {second.stack, of_second}});
  }

  /// `parts` as ranges of the columns of `whole`: neighbours in both are one range.
  std::vector<StackRange> ranges(const std::vector<ValueId>& parts, const std::vector<ValueId>& whole) const {
    std::vector<StackRange> result;
    int64_t at = 0;
    for (ValueId part : parts) {
      int64_t start = 0;
      for (ValueId v : whole) {
        if (v == part) break;
        start += columns(v);
      }
      int64_t limit = start + columns(part);
      if (!result.empty() && result.back().limit == start)
        result.back().limit = limit;
      else
        result.push_back({at, start, limit});
      at += columns(part);
    }
    return result;
  }

  void rewrite_readers(ValueId stack, const std::map<ValueId, std::vector<StackRange>>& old) {
    std::set<size_t> places;
    for (const auto& [value, columns_read] : old)
      if (auto found = readers_.find(value); found != readers_.end())
        places.insert(found->second.begin(), found->second.end());
    std::map<ValueId, ValueId> joined;
    std::map<Dims, ValueId> sums;
    for (size_t place : places) {
      Block out;
      ir::Builder builder(program_, out);
      for (Op& op : edited_.before(place))
        if (rewrite_reader(op, stack, old, builder, joined, sums)) out.ops.push_back(std::move(op));
      if (!edited_.is_gone(place) && !rewrite_reader(edited_.at(place), stack, old, builder, joined, sums))
        edited_.take_out(place);
      edited_.before(place) = std::move(out.ops);
    }
    readers_[stack].assign(places.begin(), places.end());
  }

  /// Replaces the operand that was an old stack by the same columns of the new stack. False if the op itself was
  /// replaced by other ops.
  bool rewrite_reader(Op& op, ValueId stack, const std::map<ValueId, std::vector<StackRange>>& old,
                      ir::Builder& builder, std::map<ValueId, ValueId>& joined, std::map<Dims, ValueId>& sums) {
    auto read = std::ranges::find_if(op.operands, [&](ValueId v) { return old.contains(v); });
    if (read == op.operands.end()) return true;
    const std::vector<StackRange>& columns_read = old.at(*read);
    if (sums_rows(op)) {
      ValueId& sum = sums.try_emplace(op.attr<Dims>("dims"), ir::kNoValue).first->second;
      if (sum == ir::kNoValue) sum = builder.reduce_sum(stack, op.attr<Dims>("dims"));
      replaced_.set(op.results[0], columns_of(builder, sum, in_equal_parts(columns_read)));
      return false;
    }
    if (ir::weights_of(op) != ir::kNoValue && columns_read.size() > 1) {
      replaced_.set(op.results[0], sum_of_products(builder, op, stack, columns_read));
      return false;
    }
    for (ValueId& v : op.operands) {
      if (!old.contains(v)) continue;
      ValueId& view = joined.try_emplace(v, ir::kNoValue).first->second;
      if (view == ir::kNoValue) view = columns_of(builder, stack, old.at(v));
      v = view;
    }
    return true;
  }

  ValueId columns_of(ir::Builder& builder, ValueId v, const std::vector<StackRange>& ranges) const {
    std::vector<ValueId> parts;
    for (const StackRange& range : ranges) parts.push_back(builder.slice(v, last_dim(v), range.start, range.limit));
    return parts.size() == 1 ? parts[0] : builder.concat(parts, last_dim(v));
  }

  /// Cuts several ranges into parts of equal size, since a concatenation of equal parts is one loop nest.
  static std::vector<StackRange> in_equal_parts(const std::vector<StackRange>& ranges) {
    constexpr int64_t kMostParts = 16;
    int64_t size = 0;
    for (const StackRange& range : ranges) size = std::gcd(size, range.limit - range.start);
    std::vector<StackRange> parts;
    for (const StackRange& range : ranges)
      for (int64_t i = 0; i < range.limit - range.start; i += size)
        if (parts.push_back({range.at + i, range.start + i, range.start + i + size}); parts.size() > kMostParts)
          return ranges;
    return ranges.size() == 1 ? ranges : parts;
  }

  /// All slices are emitted before the products: prepack keeps only neighbouring products as one sum.
  ValueId sum_of_products(ir::Builder& builder, const Op& op, ValueId stack,
                          const std::vector<StackRange>& ranges) const {
    bool transposed = op.attr_or("transpose_b", false);
    // Weights that are a cast are sliced before the cast, so that prepack still sees the cast.
    ValueId weights = op.operands[1];
    DType dtype = program_.type(weights).dtype;
    if (auto cast = cast_of_.find(weights); cast != cast_of_.end()) weights = cast->second;
    std::vector<std::pair<ValueId, ValueId>> factors;
    for (const StackRange& range : ranges) {
      ValueId a = builder.slice(stack, last_dim(stack), range.start, range.limit);
      ValueId b = builder.slice(weights, transposed ? 1 : 0, range.at, range.at + range.limit - range.start);
      factors.emplace_back(a, builder.cast(b, dtype));
    }
    std::vector<ValueId> products;
    for (auto [a, b] : factors) products.push_back(builder.matmul(a, b, transposed));
    ValueId sum = products[0];
    for (size_t i = 1; i < products.size(); ++i) sum = builder.add(sum, products[i]);
    return sum;
  }

  Program& program_;
  Block& body_;
  EditedOps edited_;
  Substitution replaced_;
  bool changed_ = false, found_readers_ = false;
  std::unordered_map<ValueId, std::vector<size_t>> readers_;  ///< by scan result: the places of its readers in the body
  ValueSet elsewhere_;                                        ///< what is read in regions, or returned
  std::unordered_map<ValueId, ValueId> cast_of_;
};

}  // namespace

void merge_stacks(Program& program) { MergeStacks(program).run(); }

}  // namespace weft::passes
