#include "passes/rolling/separate_writes.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Dim;
using ir::kNoValue;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

constexpr int kShortestChain = 3;
/// A longer slice stays a slice of the link: steps that read all that was written before aren't alike.
constexpr int64_t kMostParts = 8;

/// Elements of a value along the dim in question.
struct Part {
  ValueId of;
  int64_t start, limit;
};

class Separation {
 public:
  explicit Separation(Program& program) : program_(program) {}

  /// True iff there was a chain, which is no more then.
  bool run() {
    find_links();
    if (!has_chain()) return false;
    rewrite_slices();
    rewrite_ends();
    return true;
  }

 private:
  /// A join that is another value with some elements replaced.
  struct Link {
    ValueId into;
    int64_t dim;
  };

  void find_links();
  std::optional<Link> link(const Op& op) const;
  bool has_chain();
  /// Whether the value is the last link of a chain, or one that is read as a whole.
  bool is_end(ValueId v) const {
    const auto length = lengths_.find(v);
    return length != lengths_.end() && length->second >= kShortestChain &&
           (whole_.contains(v) || !continued_.contains(v));
  }
  void rewrite_slices();
  void rewrite_slice(Op op);
  void become(const Op& op, const Part& part);
  void add_rows(const Op& op, const std::vector<Part>& parts);
  void rewrite_ends();
  std::vector<Op> rewritten_end(const Op& op);
  void place_ends(std::vector<Op> ops);

  std::optional<std::pair<ValueId, ir::SliceRange>> slice(ValueId v) const;
  /// Whether the value is a link that the slices of it can be read through.
  bool is_open(ValueId v) const { return links_.contains(v) && !whole_.contains(v); }
  /// Whether slices of the value along the dim are of a chain: of a link, or of what its first link writes into.
  bool is_of_chain(ValueId v, int64_t dim) const {
    const auto found = links_.find(v);
    if (found != links_.end()) return found->second.dim == dim && is_open(v);
    const auto base = bases_.find(v);
    return base != bases_.end() && base->second == dim;
  }
  /// Whether a step reads the slice, before others write on.
  bool is_read_in_chain(const Op& op) const {
    return sliced_.contains(op.results[0]) && continued_.contains(op.operands[0]);
  }
  std::vector<Part> parts_of(Part whole, int64_t dim, int64_t most) const;
  ValueId value_of(const Part& part, int64_t dim, std::vector<Op>& ops);
  int64_t size(ValueId v, int64_t dim) const;
  const Op* maker(ValueId v) const {
    const auto found = makers_.find(v);
    return found == makers_.end() ? nullptr : &ops_[found->second];
  }
  void add(Op op) {
    for (ValueId result : op.results) makers_[result] = ops_.size();
    ops_.push_back(std::move(op));
  }

  Program& program_;
  std::vector<Op> ops_;
  std::unordered_map<ValueId, size_t> makers_;  ///< by value: its op among `ops_`
  std::unordered_map<ValueId, Link> links_;     ///< by result
  std::unordered_map<ValueId, int> lengths_;    ///< by link: of the chain up to it
  std::unordered_map<ValueId, int64_t> bases_;  ///< what first links write into, and the dim
  Substitution same_;                           ///< slices that are another value as a whole
  ValueSet whole_;                              ///< values that something else than slices along their dim reads
  ValueSet sliced_;                             ///< slices that something else than a link reads
  ValueSet continued_;                          ///< values that a link goes on from
};

int64_t Separation::size(ValueId v, int64_t dim) const {
  return program_.type(v).shape[static_cast<size_t>(dim)].constant();
}

std::optional<std::pair<ValueId, ir::SliceRange>> Separation::slice(ValueId v) const {
  const Op* op = maker(v);
  if (op == nullptr || !ir::is_range(op->code)) return std::nullopt;
  const std::optional<ir::SliceRange> range = ir::constant_range(*op);
  if (!range) return std::nullopt;
  return std::pair(op->operands[0], *range);
}

std::optional<Separation::Link> Separation::link(const Op& op) const {
  if (!ir::is_join(op.code) || op.operands.size() < 2) return std::nullopt;
  const auto dim = op.attr<int64_t>("dim");
  const ir::Type& type = program_.type(op.results[0]);
  const Dim& length = type.shape[static_cast<size_t>(dim)];
  const auto is_constant = [&](ValueId v) { return program_.type(v).shape[static_cast<size_t>(dim)].is_constant(); };
  if (!length.is_constant() || !std::ranges::all_of(op.operands, is_constant)) return std::nullopt;
  // What is in front of the new elements, and behind them, stands where it stood.
  ValueId before = kNoValue, behind = kNoValue;
  if (const auto first = slice(op.operands.front());
      first && first->second.dim == dim && first->second.start == 0 && program_.type(first->first) == type)
    before = first->first;
  if (const auto last = slice(op.operands.back());
      last && last->second.dim == dim && last->second.limit == length.constant() && program_.type(last->first) == type)
    behind = last->first;
  if (before == kNoValue && behind == kNoValue) return std::nullopt;
  if (before != kNoValue && behind != kNoValue && before != behind) return std::nullopt;
  return Link{before != kNoValue ? before : behind, dim};
}

void Separation::find_links() {
  ir::Block& block = program_.body;
  for (Op& op : block.ops) {
    if (const std::optional<Link> found = link(op)) {
      links_.emplace(op.results[0], *found);
      continued_.insert(found->into);
      if (!links_.contains(found->into)) bases_.emplace(found->into, found->dim);
    } else if (!ir::is_range(op.code)) {
      for_each_use(op, [&](ValueId v) { sliced_.insert(v); });
    }
    if (links_.contains(op.results.empty() ? kNoValue : op.results[0])) {
      for (size_t i = 1; i + 1 < op.operands.size(); ++i) sliced_.insert(op.operands[i]);
    }
    for_each_use(op, [&](ValueId v) {
      const auto read = links_.find(v);
      if (read == links_.end()) return;
      const bool is_slice =
          ir::is_range(op.code) && ir::constant_range(op) && op.attr<int64_t>("dim") == read->second.dim;
      if (!is_slice) whole_.insert(v);
    });
    add(op);
  }
  for (ValueId v : block.results) whole_.insert(v), sliced_.insert(v);
}

bool Separation::has_chain() {
  int longest = 0;
  for (const Op& op : ops_) {
    const auto found = op.results.empty() ? links_.end() : links_.find(op.results[0]);
    if (found == links_.end()) continue;
    const auto [into, dim] = found->second;
    const auto before = links_.find(into);
    const bool goes_on = before != links_.end() && before->second.dim == dim && is_open(into);
    const int length = 1 + (goes_on ? lengths_[into] : 0);
    lengths_[op.results[0]] = length;
    longest = std::max(longest, length);
  }
  return longest >= kShortestChain;
}

/// What the elements are, in order: parts of values that are no open links. More than `most` of them, if there are.
std::vector<Part> Separation::parts_of(Part whole, int64_t dim, int64_t most) const {
  std::vector<Part> found;
  std::vector<Part> left = {whole};
  while (!left.empty() && std::ssize(found) <= most) {
    const Part part = left.back();
    left.pop_back();
    if (part.start >= part.limit) continue;
    if (const auto of = slice(part.of); of && of->second.dim == dim) {
      left.push_back({of->first, of->second.start + part.start, of->second.start + part.limit});
      continue;
    }
    const auto through = links_.find(part.of);
    const bool is_first = part.of == whole.of;  // a link that is read as a whole is taken apart itself
    if (through != links_.end() && through->second.dim == dim && (is_first || is_open(part.of))) {
      const std::vector<ValueId>& operands = maker(part.of)->operands;
      int64_t end = size(part.of, dim);
      for (size_t i = operands.size(); i-- > 0;) {
        const int64_t begin = end - size(operands[i], dim);
        left.push_back({operands[i], std::max(part.start - begin, int64_t{0}), std::min(part.limit, end) - begin});
        end = begin;
      }
    } else if (!found.empty() && found.back().of == part.of && found.back().limit == part.start) {
      found.back().limit = part.limit;
    } else {
      found.push_back(part);
    }
  }
  return found;
}

/// The part as a value. A slice is added to `ops`.
ValueId Separation::value_of(const Part& part, int64_t dim, std::vector<Op>& ops) {
  if (part.start == 0 && part.limit == size(part.of, dim)) return part.of;
  ir::Type type = program_.type(part.of);
  type.shape[static_cast<size_t>(dim)] = Dim(part.limit - part.start);
  const ValueId result = program_.new_value(std::move(type));
  if (const Op* op = maker(part.of); op != nullptr && ir::is_constant(op->code)) {
    ops.push_back({op->code, {}, {result}, op->attrs, {}});
    return result;
  }
  ops.push_back(
      {OpCode::kSlice, {part.of}, {result}, {{"dim", dim}, {"start", part.start}, {"limit", part.limit}}, {}});
  return result;
}

/// Slices of links become what was written there.
void Separation::rewrite_slices() {
  const std::vector<Op> before = std::exchange(ops_, {});
  makers_.clear();
  for (const Op& op : before) rewrite_slice(op);
  for (ValueId& v : program_.body.results) v = same_(v);
}

void Separation::rewrite_slice(Op op) {
  substitute(op, same_);
  const std::optional<ir::SliceRange> range = ir::is_range(op.code) ? ir::constant_range(op) : std::nullopt;
  if (!range || !is_of_chain(op.operands[0], range->dim)) return add(std::move(op));
  const std::vector<Part> parts = parts_of({op.operands[0], range->start, range->limit}, range->dim, kMostParts);
  if (parts.size() == 1 && (!is_read_in_chain(op) || range->limit - range->start == 1)) return become(op, parts[0]);
  if (is_read_in_chain(op) && range->limit - range->start <= kMostParts) return add_rows(op, parts);
  add(std::move(op));
}

/// The slice becomes the part.
void Separation::become(const Op& op, const Part& part) {
  std::vector<Op> ops;
  same_.set(op.results[0], value_of(part, op.attr<int64_t>("dim"), ops));
  copy_note(op, ops);
  for (Op& each : ops) add(std::move(each));
}

/// The slice becomes the join of its rows: it is one part in some steps, several in others, and rows in all of them.
void Separation::add_rows(const Op& op, const std::vector<Part>& parts) {
  const auto dim = op.attr<int64_t>("dim");
  std::vector<Op> ops;
  Op join{OpCode::kConcat, {}, op.results, {{"dim", dim}}, {}};
  for (const Part& part : parts)
    for (int64_t row = part.start; row < part.limit; ++row)
      join.operands.push_back(value_of({part.of, row, row + 1}, dim, ops));
  ops.push_back(std::move(join));
  copy_note(op, ops);
  for (Op& each : ops) add(std::move(each));
}

/// The last links become joins of all that was written. Links and slices that nobody reads then go.
void Separation::rewrite_ends() {
  std::unordered_map<ValueId, size_t> uses;
  const auto count = [&](const Op& op, size_t by) { for_each_use(op, [&](ValueId v) { uses[v] += by; }); };
  for (const Op& op : ops_) count(op, 1);
  for (ValueId v : program_.body.results) ++uses[v];
  std::vector<Op> written;  // from the last to the first
  for (size_t i = ops_.size(); i-- > 0;) {
    const Op& op = ops_[i];
    const bool is_read = std::ranges::any_of(op.results, [&](ValueId v) { return uses[v] > 0; });
    const bool is_link = !op.results.empty() && links_.contains(op.results[0]);
    if (!is_read && (is_link || ir::traits_of(op.code).may_move)) {
      count(op, ~size_t{0});
      continue;
    }
    std::vector<Op> ops = is_link && is_end(op.results[0]) ? rewritten_end(op) : std::vector<Op>{op};
    for (const Op& each : ops) count(each, 1);
    count(op, ~size_t{0});
    std::ranges::move(ops.rbegin(), ops.rend(), std::back_inserter(written));
  }
  std::ranges::reverse(written);
  place_ends(std::move(written));
}

/// Puts each link in front of its first reader: the last one would stand in the midst of the last step.
void Separation::place_ends(std::vector<Op> ops) {
  std::vector<Op>& placed = program_.body.ops;
  placed.clear();
  std::unordered_map<ValueId, Op> waiting;
  std::vector<ValueId> order;
  const auto place = [&](const auto& self, ValueId v) -> void {
    const auto found = waiting.find(v);
    if (found == waiting.end()) return;
    const Op op = std::move(found->second);
    waiting.erase(found);
    for (ValueId operand : op.operands) self(self, operand);
    placed.push_back(op);
  };
  for (Op& op : ops) {
    if (!op.results.empty() && is_end(op.results[0])) {
      order.push_back(op.results[0]);
      waiting.emplace(op.results[0], std::move(op));
      continue;
    }
    for_each_use(op, [&](ValueId v) { place(place, v); });
    placed.push_back(std::move(op));
  }
  for (ValueId v : order) place(place, v);
}

std::vector<Op> Separation::rewritten_end(const Op& op) {
  const ValueId result = op.results[0];
  const int64_t dim = links_.at(result).dim;
  std::vector<Op> ops;
  Op join{op.code, {}, op.results, op.attrs, {}};
  for (const Part& part : parts_of({result, 0, size(result, dim)}, dim, std::numeric_limits<int64_t>::max()))
    join.operands.push_back(value_of(part, dim, ops));
  copy_note(op, ops);
  if (join.operands.empty()) return {op};
  if (join.operands.size() == 1) join = Op{OpCode::kReshape, join.operands, op.results, {}, {}};
  ops.push_back(std::move(join));
  return ops;
}

}  // namespace

std::optional<Program> separate_writes(const Program& program) {
  const auto is_join = [](const Op& op) { return ir::is_join(op.code); };
  if (std::ranges::count_if(program.body.ops, is_join) < kShortestChain) return std::nullopt;
  Program separated = program;
  if (!Separation(separated).run()) return std::nullopt;
  return separated;
}

}  // namespace weft::passes
