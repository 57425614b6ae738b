#include "passes/loops/merge_stacks.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using Dims = std::vector<int64_t>;

/// Columns start..limit-1 of the merged concatenation, which are the columns from `at` on of one of the original two.
struct Range {
  int64_t at, start, limit;
};

/// A concatenation in the region that is a y of the scan, and its stack.
struct Stack {
  size_t y;
  size_t op;  ///< the concatenation's place in the region
  ValueId out, stack;
  std::vector<ValueId> parts;
};

class MergeStacks {
 public:
  explicit MergeStacks(Program& program) : program_(program), body_(program.body) {}

  void run() {
    for (size_t i = 0; i < body_.ops.size(); ++i)
      while (body_.ops[i].code == OpCode::kScan && share_in(i)) continue;
  }

 private:
  int64_t columns(ValueId v) const { return program_.type(v).shape.back().constant(); }
  int64_t last_dim(ValueId v) const { return program_.type(v).rank() - 1; }

  /// The first pair of stacks of the scan that can be merged.
  bool share_in(size_t scan) {
    std::vector<Stack> stacks = concatenations(body_.ops[scan]);
    for (const Stack& first : stacks) {
      if (!is_read_in_ranges(first)) continue;
      for (const Stack& second : stacks) {
        if (second.out == first.out || !is_read_here(second.stack)) continue;
        if (std::optional<size_t> place = place_for(body_.ops[scan].regions[0], first, second)) {
          join(scan, first, second, *place);
          return true;
        }
      }
    }
    return false;
  }

  /// The ys that are concatenations of columns, of the types for which there are kernels behind the loop.
  std::vector<Stack> concatenations(const Op& scan) const {
    const Block& region = scan.regions[0];
    std::vector<Stack> stacks;
    auto carries = static_cast<size_t>(scan.attr<int64_t>("carries"));
    for (size_t y = carries; y < region.results.size(); ++y) {
      ValueId out = region.results[y];
      DType dtype = program_.type(out).dtype;
      if (dtype != DType::kF32 && dtype != DType::kF64) continue;
      if (std::ranges::count(region.results, out) != 1) continue;
      for (size_t i = 0; i < region.ops.size(); ++i) {
        const Op& op = region.ops[i];
        if (op.code != OpCode::kConcat || op.results[0] != out || op.attr<int64_t>("dim") != last_dim(out)) continue;
        bool constant = std::ranges::all_of(
            op.operands, [&](ValueId v) { return program_.type(v).shape.back().is_constant() && columns(v) > 0; });
        std::vector<ValueId> sorted = op.operands;
        std::ranges::sort(sorted);
        if (constant && std::ranges::adjacent_find(sorted) == sorted.end())
          stacks.push_back({y, i, out, scan.results[y], op.operands});
      }
    }
    return stacks;
  }

  /// Whether it is read by ops of the body alone: not returned, and in no region.
  bool is_read_here(ValueId v) const {
    bool here = std::ranges::find(body_.results, v) == body_.results.end();
    for (const Op& op : body_.ops)
      if (!op.regions.empty()) for_each_use(op, [&](ValueId used) { here = here && used != v; });
    return here;
  }

  bool is_read_in_ranges(const Stack& stack) const {
    return is_read_here(stack.stack) && std::ranges::all_of(body_.ops, [&](const Op& op) {
             return std::ranges::find(op.operands, stack.stack) == op.operands.end() || reads_ranges(op, stack.stack);
           });
  }

  bool sums_rows(const Op& op) const {
    if (op.code != OpCode::kReduceSum) return false;
    const Dims& dims = op.attr<Dims>("dims");
    int64_t last = last_dim(op.operands[0]);
    return static_cast<int64_t>(dims.size()) == last && std::ranges::find(dims, last) == dims.end();
  }

  bool reads_ranges(const Op& op, ValueId stack) const {
    if (op.code == OpCode::kOuter) return true;
    if (op.code == OpCode::kMatmul) return op.operands[1] != stack;
    return sums_rows(op);
  }

  /// The place in the region for the merged concatenation: behind the definitions of all parts, before the first reader
  /// of the second. None if the two share no part, or if the region reads the first.
  std::optional<size_t> place_for(const Block& region, const Stack& first, const Stack& second) const {
    auto in_second = [&](ValueId v) { return std::ranges::find(second.parts, v) != second.parts.end(); };
    if (std::ranges::none_of(first.parts, in_second)) return std::nullopt;
    size_t place = 0;
    size_t reader = region.ops.size();
    for (size_t i = region.ops.size(); i-- > 0;) {
      const Op& op = region.ops[i];
      bool reads_first = false;
      for_each_use(op, [&](ValueId v) {
        reads_first = reads_first || v == first.out;
        if (v == second.out) reader = i;
      });
      if (reads_first) return std::nullopt;
      for (ValueId v : op.results)
        if (in_second(v) || std::ranges::find(first.parts, v) != first.parts.end()) place = std::max(place, i + 1);
    }
    if (place > reader) return std::nullopt;
    return place;
  }

  void join(size_t at, const Stack& first, const Stack& second, size_t place) {
    Op& scan = body_.ops[at];
    std::vector<ValueId> parts;
    for (ValueId v : first.parts)
      if (std::ranges::find(second.parts, v) == second.parts.end()) parts.push_back(v);
    parts.insert(parts.end(), second.parts.begin(), second.parts.end());
    std::vector<Range> of_first = ranges(first.parts, parts);
    std::vector<Range> of_second = ranges(second.parts, parts);

    Block holder;
    ir::Builder inside(program_, holder);
    ValueId whole = inside.concat(parts, last_dim(second.out));
    ValueId slice = inside.slice(whole, last_dim(whole), of_second[0].start, of_second[0].limit);
    Substitution replaced;
    replaced.set(second.out, slice);
    Block& region = scan.regions[0];
    std::vector<Op> ops;
    for (size_t i = 0; i <= region.ops.size(); ++i) {
      if (i == place) std::ranges::move(holder.ops, std::back_inserter(ops));
      if (i == region.ops.size() || i == first.op || i == second.op) continue;
      substitute(region.ops[i], replaced);
      ops.push_back(std::move(region.ops[i]));
    }
    region.ops = std::move(ops);
    region.results[second.y] = whole;
    ir::Type type = program_.type(second.stack);
    type.shape.back() = program_.type(whole).shape.back();
    ValueId stack = program_.new_value(std::move(type));
    scan.results[second.y] = stack;
    region.results.erase(region.results.begin() + static_cast<int64_t>(first.y));
    scan.results.erase(scan.results.begin() + static_cast<int64_t>(first.y));
    rewrite_readers(at, stack, {{first.stack, of_first}, {second.stack, of_second}});
  }

  /// `parts` as ranges of the columns of `whole`: neighbours in both are one range.
  std::vector<Range> ranges(const std::vector<ValueId>& parts, const std::vector<ValueId>& whole) const {
    std::vector<Range> result;
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

  void rewrite_readers(size_t scan, ValueId stack, const std::map<ValueId, std::vector<Range>>& old) {
    Block out;
    ir::Builder builder(program_, out);
    std::map<ValueId, ValueId> joined;
    std::map<Dims, ValueId> sums;
    Substitution replaced;
    for (size_t i = 0; i < body_.ops.size(); ++i) {
      Op& op = body_.ops[i];
      auto read =
          i <= scan ? op.operands.end() : std::ranges::find_if(op.operands, [&](ValueId v) { return old.contains(v); });
      if (i > scan) substitute(op, replaced);
      if (i <= scan || read == op.operands.end()) {
        out.ops.push_back(std::move(op));
        continue;
      }
      const std::vector<Range>& columns_read = old.at(*read);
      if (sums_rows(op)) {
        ValueId& sum = sums.try_emplace(op.attr<Dims>("dims"), ir::kNoValue).first->second;
        if (sum == ir::kNoValue) sum = builder.reduce_sum(stack, op.attr<Dims>("dims"));
        replaced.set(op.results[0], columns_of(builder, sum, in_equal_parts(columns_read)));
      } else if (op.code == OpCode::kMatmul && columns_read.size() > 1) {
        replaced.set(op.results[0], sum_of_products(builder, op, stack, columns_read));
      } else {
        for (ValueId& v : op.operands) {
          if (!old.contains(v)) continue;
          ValueId& view = joined.try_emplace(v, ir::kNoValue).first->second;
          if (view == ir::kNoValue) view = columns_of(builder, stack, old.at(v));
          v = view;
        }
        out.ops.push_back(std::move(op));
      }
    }
    body_.ops = std::move(out.ops);
    for (ValueId& v : body_.results) v = replaced(v);
  }

  ValueId columns_of(ir::Builder& builder, ValueId v, const std::vector<Range>& ranges) const {
    std::vector<ValueId> parts;
    for (const Range& range : ranges) parts.push_back(builder.slice(v, last_dim(v), range.start, range.limit));
    return parts.size() == 1 ? parts[0] : builder.concat(parts, last_dim(v));
  }

  /// Cuts several ranges into parts of equal size, since a concatenation of equal parts is one loop nest.
  static std::vector<Range> in_equal_parts(const std::vector<Range>& ranges) {
    constexpr int64_t kMostParts = 16;
    int64_t size = 0;
    for (const Range& range : ranges) size = std::gcd(size, range.limit - range.start);
    std::vector<Range> parts;
    for (const Range& range : ranges)
      for (int64_t i = 0; i < range.limit - range.start; i += size)
        if (parts.push_back({range.at + i, range.start + i, range.start + i + size}); parts.size() > kMostParts)
          return ranges;
    return ranges.size() == 1 ? ranges : parts;
  }

  /// The slices come first and the products after them, as neighbours, so that prepack keeps them as one sum.
  ValueId sum_of_products(ir::Builder& builder, const Op& op, ValueId stack, const std::vector<Range>& ranges) const {
    bool transposed = op.attr_or("transpose_b", false);
    // Weights that are a cast are sliced before the cast, so that prepack still sees the cast.
    ValueId weights = op.operands[1];
    DType dtype = program_.type(weights).dtype;
    for (const Op& other : builder.block().ops)
      if (other.code == OpCode::kCast && other.results[0] == op.operands[1]) weights = other.operands[0];
    std::vector<std::pair<ValueId, ValueId>> factors;
    for (const Range& range : ranges) {
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
};

}  // namespace

void merge_stacks(Program& program) { MergeStacks(program).run(); }

}  // namespace weft::passes
