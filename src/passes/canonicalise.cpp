#include "passes/canonicalise.h"

#include <algorithm>
#include <unordered_map>

#include "passes/simplifier.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::kNoValue;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::Type;
using ir::ValueId;
using Dims = std::vector<int64_t>;

struct Range {
  int64_t dim, start, limit;
  bool operator==(const Range&) const = default;
};

Range range_of(const Op& slice) {
  return {slice.attr<int64_t>("dim"), slice.attr<int64_t>("start"), slice.attr<int64_t>("limit")};
}

/// Which slices are all that is read of a value: by slices, or by elementwise ops of which only slices are read.
class SliceReads {
 public:
  SliceReads(const Program& program, const Block& block) : program_(program), all_(program.values.size()) {
    visit(block);
  }

  /// The ranges; empty when more than slices is read (or nothing).
  const std::vector<Range>& of(ValueId v) const {
    static const std::vector<Range> none;
    auto it = ranges_.find(v);
    return it == ranges_.end() || all_[v] ? none : it->second;
  }

 private:
  static constexpr size_t kMost = 16;

  void visit(const Block& block) {
    for (ValueId v : block.results) all_[v] = true;
    for (size_t i = block.ops.size(); i-- > 0;) {
      const Op& op = block.ops[i];
      for (const Block& region : op.regions) visit(region);
      if (op.code == OpCode::kSlice) {
        add(op.operands[0], range_of(op));
      } else if (info(op.code).op_class == OpClass::kElementwise && !of(op.results[0]).empty()) {
        const std::vector<Range> ranges = of(op.results[0]);
        for (ValueId v : op.operands)
          for (const Range& range : ranges) add(v, range);
      } else {
        for (ValueId v : op.operands) all_[v] = true;
      }
    }
  }

  /// Ranges along one dim, that together read no element twice.
  void add(ValueId v, const Range& range) {
    if (all_[v]) return;
    auto& ranges = ranges_[v];
    if (std::ranges::find(ranges, range) != ranges.end()) return;
    for (const Range& other : ranges)
      if (other.dim != range.dim || (other.start < range.limit && range.start < other.limit)) all_[v] = true;
    ranges.push_back(range);
    if (ranges.size() > kMost) all_[v] = true;
  }

  const Program& program_;
  std::vector<bool> all_;
  std::unordered_map<ValueId, std::vector<Range>> ranges_;
};

class Canonicalise {
 public:
  explicit Canonicalise(Program& program) : program_(program), simplifier_(program), reads_(program, program.body) {}

  /// One sweep; true iff something changed.
  bool run() {
    run(program_.body);
    return simplifier_.changed;
  }

 private:
  void run(Block& block) {
    Block out;
    Block* before = simplifier_.enter(&out);
    for (Op& op : block.ops) {
      for (ValueId& v : op.operands) v = replaced_(v);
      if (op.code == OpCode::kScan)
        run_scan(std::move(op));
      else
        run_op(std::move(op));
    }
    for (ValueId& v : block.results) v = replaced_(v);
    simplifier_.enter(before);
    // The simplifier must not be asked about these any more, but for those of an enclosing block.
    block.ops = std::move(out.ops);
  }

  void run_op(Op op) {
    ValueId own = op.results[0];
    if (op.code == OpCode::kSlice) {
      auto it = sliced_.find(op.operands[0]);
      if (it != sliced_.end()) return replace(own, it->second.at(position(op.operands[0], range_of(op))));
    }
    if (info(op.code).op_class == OpClass::kElementwise)
      if (const auto& ranges = reads_.of(own); !ranges.empty()) return run_on_slices(op, ranges);
    replace(own, simplifier_.add(std::move(op)));
  }

  void replace(ValueId from, ValueId to) { replaced_.set(from, to); }

  size_t position(ValueId v, const Range& range) const {
    const auto& ranges = reads_.of(v);
    return static_cast<size_t>(std::ranges::find(ranges, range) - ranges.begin());
  }

  void run_on_slices(const Op& op, const std::vector<Range>& ranges) {
    simplifier_.changed = true;
    std::vector<ValueId> slices;
    for (const Range& range : ranges) {
      std::vector<ValueId> operands;
      for (ValueId v : op.operands) {
        auto it = sliced_.find(v);
        operands.push_back(it != sliced_.end() ? it->second.at(position(v, range))
                                               : simplifier_.slice(v, range.dim, range.start, range.limit));
      }
      Type declared = program_.type(op.results[0]);
      declared.shape[static_cast<size_t>(range.dim)] = ir::Dim(range.limit - range.start);
      slices.push_back(
          simplifier_.make(op.code, std::move(operands), op.attrs, op.code == OpCode::kCast ? &declared : nullptr));
    }
    sliced_.emplace(op.results[0], std::move(slices));
  }

  void run_scan(Op op) {
    ScanParts parts(std::move(op));
    Block region;
    repeated_xs(parts, region);
    constant_carries(parts);
    region.ops.insert(region.ops.end(), std::make_move_iterator(parts.ops.begin()),
                      std::make_move_iterator(parts.ops.end()));
    for (const auto& carry : parts.carries) region.results.push_back(carry.out);
    for (const auto& y : parts.ys) region.results.push_back(y.out);
    run(region);
    parts.ops = std::move(region.ops);
    for (size_t i = 0; i < parts.carries.size(); ++i) parts.carries[i].out = region.results[i];
    for (size_t i = 0; i < parts.ys.size(); ++i) parts.ys[i].out = region.results[parts.carries.size() + i];
    known_ys(parts);
    simplifier_.append(std::move(parts).build());
  }

  /// Each step of a stack that repeats one value is that value.
  void repeated_xs(ScanParts& parts, Block& region) {
    std::erase_if(parts.xs, [&](const ScanParts::X& x) {
      const Op* op = simplifier_.definition(x.stack);
      if (!op) return false;
      Type step = program_.type(x.arg);
      if (op->code == OpCode::kConstant) {
        Op constant{OpCode::kConstant, {}, {x.arg}, op->attrs, {}};
        region.ops.push_back(std::move(constant));
      } else if (op->code == OpCode::kBroadcast) {
        Dims dims = op->attr<Dims>("dims");
        if (!dims.empty() && dims[0] == 0) return false;
        for (int64_t& dim : dims) --dim;
        Op broadcast{OpCode::kBroadcast, op->operands, {x.arg}, {{"dims", std::move(dims)}}, {}};
        region.ops.push_back(std::move(broadcast));
      } else {
        return false;
      }
      simplifier_.changed = true;
      return true;
    });
  }

  /// A carry that goes out as it came in, or that begins as the constant that it becomes.
  void constant_carries(ScanParts& parts) {
    std::unordered_map<ValueId, const Op*> constants;
    for (const Op& op : parts.ops)
      if (op.code == OpCode::kConstant) constants.emplace(op.results[0], &op);
    std::erase_if(parts.carries, [&](const ScanParts::Carry& carry) {
      bool same = carry.out == carry.arg || replaced_(carry.out) == carry.init;
      if (auto it = constants.find(carry.out); !same && it != constants.end()) {
        const Op* init = simplifier_.definition(carry.init, OpCode::kConstant);
        same = init && init->attr<double>("value") == it->second->attr<double>("value");
      }
      if (!same) return false;
      replace(carry.arg, carry.init);
      replace(carry.result, carry.init);
      simplifier_.changed = true;
      return true;
    });
  }

  /// Ys that are xs, or the same in every step.
  void known_ys(ScanParts& parts) {
    std::unordered_map<ValueId, ValueId> stack;
    for (const auto& x : parts.xs) stack.emplace(x.arg, x.stack);
    std::unordered_map<ValueId, double> constants;
    ValueSet inside;
    for (const auto& carry : parts.carries) inside.insert(carry.arg);
    for (const Op& op : parts.ops) {
      for (ValueId result : op.results) inside.insert(result);
      if (op.code == OpCode::kConstant) constants.emplace(op.results[0], op.attr<double>("value"));
    }
    std::erase_if(parts.ys, [&](const ScanParts::Y& y) {
      Type result = program_.type(y.stack);
      if (auto it = stack.find(y.out); it != stack.end()) {
        replace(y.stack, it->second);
      } else if (auto c = constants.find(y.out); c != constants.end()) {
        replace(y.stack, simplifier_.constant(c->second, result));
      } else if (!inside.contains(y.out)) {
        Dims dims;
        for (size_t i = 1; i < result.shape.size(); ++i) dims.push_back(static_cast<int64_t>(i));
        replace(y.stack, simplifier_.make(OpCode::kBroadcast, {y.out}, {{"dims", std::move(dims)}}, &result));
      } else {
        return false;
      }
      simplifier_.changed = true;
      return true;
    });
  }

  Program& program_;
  Simplifier simplifier_;
  SliceReads reads_;
  Substitution replaced_;
  std::unordered_map<ValueId, std::vector<ValueId>> sliced_;  ///< values that are computed slice by slice
};

}  // namespace

void canonicalise(Program& program) {
  constexpr int kMostSweeps = 8;
  for (int i = 0; i < kMostSweeps; ++i)
    if (!Canonicalise(program).run()) return;
}

}  // namespace weft::passes
