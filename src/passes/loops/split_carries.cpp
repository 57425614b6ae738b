#include "passes/loops/split_carries.h"

#include <algorithm>
#include <map>

#include "ir/builder.h"
#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

/// More parts than a cell's state has. A limit, since each part becomes a carry with memory of its own.
constexpr size_t kMostParts = 8;

/// Part of a carry: its elements start..limit-1 along the dim.
struct Part {
  int64_t start, limit;
  ValueId out;  ///< what a step yields for it
};

/// How a step reads a carry.
struct Reads {
  std::vector<size_t> slices;  ///< places in the region's ops
  bool otherwise = false;
};

class CarrySplitter {
 public:
  explicit CarrySplitter(Program& program) : program_(program) {}

  void run(Block& block) {
    Block result;
    for (Op& op : block.ops) {
      for (Block& region : op.regions) run(region);
      if (op.code == OpCode::kScan && !op.has("rows"))
        split_carries_of(ScanParts(std::move(op)), result);
      else
        result.ops.push_back(std::move(op));
    }
    block.ops = std::move(result.ops);
  }

 private:
  void split_carries_of(ScanParts scan, Block& around) {
    const std::map<ValueId, Reads> reads = reads_of_carries(scan);
    std::map<ValueId, const Op*> concats;
    for (const Op& op : scan.ops)
      if (ir::is_join(op.code)) concats.emplace(op.results[0], &op);
    std::vector<ScanParts::Carry> carries;
    std::vector<Op> joins;  // the old carries' last values
    Substitution replaced;
    for (const ScanParts::Carry& carry : scan.carries) {
      const Reads& of_carry = reads.at(carry.arg);
      auto concat = concats.find(carry.out);
      std::vector<Part> parts;
      if (concat != concats.end()) parts = parts_to_split(scan, *concat->second, of_carry);
      if (parts.empty())
        carries.push_back(carry);
      else
        joins.push_back(split(scan, carry, parts, dim_of(*concat->second), of_carry, around, carries, replaced));
    }
    scan.carries = std::move(carries);
    std::erase_if(scan.ops, [&](const Op& op) { return !op.results.empty() && replaced.contains(op.results[0]); });
    substitute(scan, replaced);
    around.ops.push_back(std::move(scan).build());
    std::ranges::move(joins, std::back_inserter(around.ops));
  }

  /// By carry: how the region's ops (nested regions included) and results read it.
  static std::map<ValueId, Reads> reads_of_carries(const ScanParts& scan) {
    std::map<ValueId, Reads> reads;
    for (const ScanParts::Carry& carry : scan.carries) reads[carry.arg];
    for (size_t i = 0; i < scan.ops.size(); ++i)
      for_each_use(scan.ops[i], [&](ValueId v) {
        auto found = reads.find(v);
        if (found == reads.end()) return;
        if (ir::is_range(scan.ops[i].code) && ir::constant_range(scan.ops[i]))
          found->second.slices.push_back(i);
        else
          found->second.otherwise = true;
      });
    auto yields = [&](ValueId v) {
      if (auto found = reads.find(v); found != reads.end()) found->second.otherwise = true;
    };
    for (const ScanParts::Carry& carry : scan.carries) yields(carry.out);
    for (const ScanParts::Y& y : scan.ys) yields(y.out);
    return reads;
  }

  static int64_t dim_of(const Op& op) { return op.attr<int64_t>("dim"); }

  /// The parts of a concatenation; none if a size is unknown.
  std::vector<Part> parts_of(const Op& concat) const {
    const auto dim = static_cast<size_t>(dim_of(concat));
    std::vector<Part> parts;
    int64_t start = 0;
    for (ValueId operand : concat.operands) {
      const ir::Dim& size = program_.type(operand).shape[dim];
      if (!size.is_constant()) return {};
      parts.push_back({start, start + size.constant(), operand});
      start += size.constant();
    }
    return parts;
  }

  /// The part that the slice lies in; null if there is none.
  static const Part* part_with(const std::vector<Part>& parts, const Op& slice) {
    auto start = slice.attr<int64_t>("start"), limit = slice.attr<int64_t>("limit");
    auto found = std::ranges::find_if(parts, [&](const Part& p) { return p.start <= start && limit <= p.limit; });
    return found == parts.end() ? nullptr : &*found;
  }

  /// The parts of the concatenation if the carry that it yields can be split into them, else none.
  std::vector<Part> parts_to_split(const ScanParts& scan, const Op& concat, const Reads& reads) const {
    std::vector<Part> parts = parts_of(concat);
    if (parts.size() < 2 || parts.size() > kMostParts || reads.otherwise) return {};
    const bool fit = std::ranges::all_of(
        reads.slices, [&](size_t i) { return dim_of(scan.ops[i]) == dim_of(concat) && part_with(parts, scan.ops[i]); });
    return fit ? parts : std::vector<Part>{};
  }

  /// Appends a carry for each part; slices of the carry become slices of these. Returns the concatenation that is the
  /// old carry's last value.
  Op split(ScanParts& scan, const ScanParts::Carry& carry, const std::vector<Part>& parts, int64_t dim,
           const Reads& reads, Block& around, std::vector<ScanParts::Carry>& carries, Substitution& replaced) {
    Op join{OpCode::kConcat, {}, {carry.result}, {{"dim", dim}}, {}};
    std::vector<ValueId> args;
    ir::Builder before(program_, around);
    for (const Part& part : parts) {
      args.push_back(new_value(program_.type(part.out)));
      join.operands.push_back(new_value(program_.type(part.out)));
      carries.push_back(
          {before.slice(carry.init, dim, part.start, part.limit), args.back(), part.out, join.operands.back()});
    }
    for (size_t i : reads.slices) {
      Op& slice = scan.ops[i];
      const Part& part = *part_with(parts, slice);
      const ValueId arg = args[static_cast<size_t>(&part - parts.data())];
      auto &start = std::get<int64_t>(slice.attrs["start"]), &limit = std::get<int64_t>(slice.attrs["limit"]);
      if (start == part.start && limit == part.limit) replaced.set(slice.results[0], arg);
      slice.operands[0] = arg;
      start -= part.start;
      limit -= part.start;
    }
    return join;
  }

  ValueId new_value(ir::Type type) { return program_.new_value(std::move(type)); }

  Program& program_;
};

}  // namespace

void split_carries(Program& program) { CarrySplitter(program).run(program.body); }

}  // namespace weft::passes
