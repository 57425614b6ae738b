#include "planning/fusion/copies.h"

#include <algorithm>
#include <set>

#include "ir/builder.h"
#include "passes/rewrite.h"
#include "planning/fusion/donations.h"

namespace weft::planning {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using passes::for_each_use;
using passes::ValueSet;

/// Finds concatenations of one block that are views.
class RangeFinder {
 public:
  RangeFinder(const LoweringRules& rules, const Block& block, const Definitions& definitions)
      : program_(rules.program()), definitions_(definitions) {
    for (const Op& op : block.ops) {
      const bool takes_ranges = rules.target().views(program_, op) == OperandViews::kColumns;
      for (ValueId operand : op.operands)
        if (!takes_ranges) other_reads_.insert(operand);
      for (const Block& region : op.regions) for_each_use(region, [&](ValueId v) { other_reads_.insert(v); });
    }
    other_reads_.insert(block.results.begin(), block.results.end());
  }

  bool wants(const Op& op) const {
    if (!ir::is_join(op.code) || other_reads_.contains(op.results[0])) return false;
    if (op.attr<int64_t>("dim") != program_.type(op.results[0]).rank() - 1) return false;
    ValueId root = definitions_.columns_of(op.operands[0]);
    return !definitions_.is_view(root) && program_.type(root).shape.back().is_constant() &&
           std::ranges::all_of(op.operands, [&](ValueId v) {
             return definitions_.columns_of(v) == root && program_.type(v).shape.back().is_constant();
           });
  }

 private:
  const Program& program_;
  const Definitions& definitions_;
  std::set<ValueId> other_reads_;
};

class CopyInserter {
 public:
  CopyInserter(Program& program, Block& block, Definitions& definitions, const LoweringRules& rules, bool in_place)
      : program_(program),
        block_(block),
        definitions_(definitions),
        rules_(rules),
        in_place_(in_place),
        here_(passes::defined_in(block)) {}

  std::vector<Op> run() {
    for (Op& op : block_.ops) {
      prepare(op);
      ops_.push_back(std::move(op));
    }
    std::set<ValueId> seen;
    const bool is_body = &block_ == &program_.body;
    for (size_t i = 0; i < block_.results.size(); ++i) {
      if (is_body && is_kept(program_, i)) continue;
      ValueId& result = block_.results[i];
      const ValueId stored = is_body && program_.donations.empty() ? definitions_.reshaped(result) : result;
      const Definitions::Definition* made = here_.contains(stored) ? definitions_.find(stored) : nullptr;
      bool owns = made && !made->view && !ir::is_alias(made->code);
      bool repeated = !seen.insert(stored).second;
      if (!owns || (repeated && !in_place_ && !made->several_places)) result = copy_here(result);
    }
    block_.ops = std::move(ops_);
    return std::move(outside_);
  }

 private:
  /// Copies the operands that the op's code can't read in place.
  void prepare(Op& op) {
    const Lowering lowering = rules_.of(op);
    if (lowering == Lowering::kView) return;
    if (lowering == Lowering::kFused) {
      if (rules_.tile(op) && !definitions_.is_row_view(op.operands[0])) op.operands[0] = copy(op.operands[0]);
      return;
    }
    const OperandViews views = rules_.target().views(program_, op);
    for (ValueId& operand : op.operands)
      if (!is_readable(operand, views)) operand = copy(operand);
  }

  bool is_readable(ValueId value, OperandViews views) const {
    if (views == OperandViews::kColumns) return definitions_.is_row_view(value);
    return !definitions_.is_view(value) || (views == OperandViews::kMatrix && definitions_.is_matrix_slice(value));
  }

  /// The copy of a value. A value from around the block is copied only once, outside, beside its definition.
  ValueId copy(ValueId value) {
    if (here_.contains(value)) return copy_here(value);
    auto [found, fresh] = copied_outside_.try_emplace(value, ir::kNoValue);
    if (fresh) found->second = append_copy(outside_, value);
    return found->second;
  }

  ValueId copy_here(ValueId value) { return append_copy(ops_, value); }

  ValueId append_copy(std::vector<Op>& ops, ValueId value) {
    Block holder;
    ValueId result = ir::Builder(program_, holder).unary(OpCode::kCopy, value);
    definitions_.add(holder.ops[0]);
    ops.push_back(std::move(holder.ops[0]));
    return result;
  }

  Program& program_;
  Block& block_;
  Definitions& definitions_;
  const LoweringRules& rules_;
  bool in_place_;
  ValueSet here_;  // made in this block, before copies
  std::vector<Op> ops_, outside_;
  std::map<ValueId, ValueId> copied_outside_;
};

}  // namespace

const Definitions::Definition* Definitions::find(ValueId value) const {
  auto found = definitions_.find(value);
  return found == definitions_.end() ? nullptr : &found->second;
}

ValueId Definitions::reshaped(ValueId value) const {
  for (const Definition* made = find(value); made && ir::is_alias(made->code); made = find(value)) value = made->source;
  return value;
}

void Definitions::add(const Op& op) {
  const ir::Type* from = ir::is_range(op.code) ? &program_.type(op.operands[0]) : nullptr;
  const bool columns = from && op.attr<int64_t>("dim") == from->rank() - 1 && from->shape.back().is_constant();
  Lowering lowering = rules_.of(op);
  bool several = lowering == Lowering::kFused || lowering == Lowering::kRowCopy;
  bool view = lowering == Lowering::kView && planning::is_view(op.code);
  const ValueId source = op.operands.empty() ? ir::kNoValue : op.operands[0];
  for (ValueId result : op.results) definitions_[result] = {op.code, view, columns && view, several, source};
  for (const Block& region : op.regions) add(region);
}

void Definitions::add(const Block& block) {
  for (const Op& op : block.ops) add(op);
}

bool Definitions::is_view(ValueId value) const {
  const Definition* made = find(value);
  return made && made->view;
}

ValueId Definitions::columns_of(ValueId value) const {
  for (const Definition* made = find(value); made && made->last_dim_slice; made = find(value)) value = made->source;
  return value;
}

bool Definitions::is_row_view(ValueId value) const { return !is_view(columns_of(value)); }

bool Definitions::is_matrix_slice(ValueId value) const {
  for (const Definition* made = find(value); made && made->view && ir::is_range(made->code); made = find(value))
    value = made->source;
  return !is_view(value) && program_.type(value).shape.back().is_constant();
}

void find_ranges(const Block& block, const Definitions& definitions, LoweringRules& rules) {
  RangeFinder finder(rules, block, definitions);
  for (const Op& op : block.ops)
    if (finder.wants(op)) rules.set_ranges(op);
}

std::vector<Op> insert_copies(Program& program, Block& block, Definitions& definitions, const LoweringRules& rules,
                              bool in_place) {
  return CopyInserter(program, block, definitions, rules, in_place).run();
}

}  // namespace weft::planning
