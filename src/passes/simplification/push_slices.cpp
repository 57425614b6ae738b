#include "passes/simplification/push_slices.h"

#include <algorithm>
#include <unordered_map>

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpClass;
using ir::Program;
using ir::Type;
using ir::ValueId;

using Range = ir::SliceRange;

/// Finds the values that are only read through slices: by slices, or by elementwise ops that are only read through
/// slices themselves.
class SliceReads {
 public:
  SliceReads(const Program& program, const Block& block) : all_(program.values.size()) { visit(block); }

  /// The ranges of the value that are read; empty if it is read as a whole, or not at all.
  const std::vector<Range>& of(ValueId v) const {
    auto it = ranges_.find(v);
    return it == ranges_.end() || all_[v] ? none_ : it->second;
  }

 private:
  static constexpr size_t kMost = 16;

  void visit(const Block& block) {
    for (ValueId v : block.results) all_[v] = true;
    for (size_t i = block.ops.size(); i-- > 0;) {
      const Op& op = block.ops[i];
      for (const Block& region : op.regions) visit(region);
      if (const auto range = ir::is_range(op.code) ? ir::constant_range(op) : std::nullopt) {
        add(op.operands[0], *range);
      } else if (info(op.code).op_class == OpClass::kElementwise && !of(op.results[0]).empty()) {
        const std::vector<Range> ranges = of(op.results[0]);
        for (ValueId v : op.operands)
          for (const Range& range : ranges) add(v, range);
      } else {
        for (ValueId v : op.operands) all_[v] = true;
      }
    }
  }

  /// Adds a range. A value whose ranges overlap or lie in different dims counts as read as a whole.
  void add(ValueId v, const Range& range) {
    if (all_[v]) return;
    auto& ranges = ranges_[v];
    if (std::ranges::find(ranges, range) != ranges.end()) return;
    for (const Range& other : ranges)
      if (other.dim != range.dim || (other.start < range.limit && range.start < other.limit)) all_[v] = true;
    ranges.push_back(range);
    if (ranges.size() > kMost) all_[v] = true;
  }

  std::vector<bool> all_;  ///< by value: whether it is read as a whole
  std::unordered_map<ValueId, std::vector<Range>> ranges_;
  const std::vector<Range> none_;
};

class PushSlices {
 public:
  explicit PushSlices(Program& program) : program_(program), reads_(program, program.body) {}

  void run(Block& block) {
    Block out;
    ir::Builder builder(program_, out);
    for (Op& op : block.ops) {
      for (ValueId& v : op.operands) v = replaced_(v);
      for (Block& region : op.regions) run(region);
      if (ir::is_range(op.code) && sliced_.contains(op.operands[0]))
        replaced_.set(op.results[0], slice_of(builder, op.operands[0], *ir::constant_range(op)));
      else if (info(op.code).op_class == OpClass::kElementwise && !reads_.of(op.results[0]).empty())
        run_on_slices(builder, op);
      else
        out.ops.push_back(std::move(op));
    }
    for (ValueId& v : block.results) v = replaced_(v);
    block.ops = std::move(out.ops);
  }

 private:
  ValueId slice_of(ir::Builder& builder, ValueId v, const Range& range) {
    auto it = sliced_.find(v);
    if (it == sliced_.end()) return builder.slice(v, range.dim, range.start, range.limit);
    const auto& ranges = reads_.of(v);
    return it->second.at(static_cast<size_t>(std::ranges::find(ranges, range) - ranges.begin()));
  }

  void run_on_slices(ir::Builder& builder, const Op& op) {
    std::vector<ValueId> slices;
    for (const Range& range : reads_.of(op.results[0])) {
      std::vector<ValueId> operands;
      for (ValueId v : op.operands) operands.push_back(slice_of(builder, v, range));
      Type declared = program_.type(op.results[0]);
      declared.shape[static_cast<size_t>(range.dim)] = ir::Dim(range.limit - range.start);
      bool declares = ir::traits_of(op.code).declares;
      slices.push_back(builder.emit(op.code, std::move(operands), op.attrs, declares ? &declared : nullptr));
    }
    sliced_.emplace(op.results[0], std::move(slices));
  }

  Program& program_;
  SliceReads reads_;
  Substitution replaced_;
  std::unordered_map<ValueId, std::vector<ValueId>> sliced_;  ///< values that are computed slice by slice
};

}  // namespace

void push_slices(Program& program) { PushSlices(program).run(program.body); }

}  // namespace weft::passes
