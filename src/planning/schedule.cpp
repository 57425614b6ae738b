#include "planning/schedule.h"

#include <algorithm>

#include "ir/size_checks.h"
#include "planning/excess_precision.h"
#include "planning/fusion/fuse.h"
#include "planning/planner.h"

namespace weft::planning {
namespace {

using ir::Block;
using ir::Op;
using ir::Program;
using ir::ValueId;

/// Finds the values of a block that need memory: all except values that only their own stage reads, in registers.
class StoredValues {
 public:
  StoredValues(const Schedule& schedule, const Block& block, const std::vector<Stage>& stages)
      : schedule_(schedule), block_(block) {
    for (size_t i = 0; i < stages.size(); ++i)
      for (const Op* op : stages[i].ops)
        for (ValueId result : op->results) stage_of_[result] = i;
  }

  std::set<ValueId> find() {
    for (const Op& op : block_.ops) {
      const Lowering lowering = schedule_.rules.of(op);
      if (lowering == Lowering::kView) continue;
      store_operands(op, lowering);
      for (const Block& region : op.regions) store_reads(region);
      // Calls, copies of rows and loops write to memory; a reduction's result and a concatenation's are not in the
      // registers of the element at hand.
      const bool in_memory = lowering != Lowering::kFused || is_reduction(op) || ir::is_join(op.code);
      if (in_memory && lowering != Lowering::kAlias) stored_.insert(op.results.begin(), op.results.end());
    }
    for (ValueId result : block_.results) store(result);
    return std::move(stored_);
  }

 private:
  void store_operands(const Op& op, Lowering lowering) {
    const bool is_product = lowering == Lowering::kFused && schedule_.rules.tile(op);
    for (ValueId operand : op.operands) {
      const bool in_registers = lowering == Lowering::kFused && !is_product && same_stage(op, operand);
      if (!in_registers) store(operand);
    }
  }

  void store_reads(const Block& region) {
    for (const Op& op : region.ops) {
      for (ValueId operand : op.operands) store(operand);
      for (const Block& inner : op.regions) store_reads(inner);
    }
    for (ValueId result : region.results) store(result);
  }

  bool same_stage(const Op& op, ValueId operand) const {
    auto producer = stage_of_.find(viewed(schedule_, operand));
    return producer != stage_of_.end() && producer->second == stage_of_.at(op.results[0]);
  }

  void store(ValueId value) {
    ValueId root = viewed(schedule_, value);
    if (stage_of_.contains(root)) {
      stored_.insert(root);
    } else if (auto def = schedule_.definition.find(root);
               def != schedule_.definition.end() && ir::is_alias(def->second->code)) {
      store(def->second->operands[0]);
    }
  }

  const Schedule& schedule_;
  const Block& block_;
  std::set<ValueId> stored_;
  std::map<ValueId, size_t> stage_of_;
};

void collect_definitions(const Block& block, std::map<ValueId, const Op*>& definition) {
  for (const Op& op : block.ops) {
    for (ValueId result : op.results) definition[result] = &op;
    for (const Block& region : op.regions) collect_definitions(region, definition);
  }
}

void collect_symbols(const Program& program, std::vector<std::string>& symbols) {
  std::set<std::string> names;
  for (ValueId arg : program.body.args)
    for (const ir::Dim& dim : program.type(arg).shape) dim.add_symbols(names);
  symbols.assign(names.begin(), names.end());
}

runtime::DimExpr in_plan(const ir::SizeTable::Size& size) {
  return {size.factor, {size.values.begin(), size.values.end()}};
}

}  // namespace

bool is_dear(const Stage& stage) {
  return std::ranges::any_of(stage.ops, [](const Op* op) { return ir::traits_of(op->code).cost == ir::Cost::kDear; });
}

int64_t column_grain(const Stage& stage) { return std::max<int64_t>(2, stage.unroll); }

int64_t column_shares(const Stage& stage) {
  if (stage.lowering != Lowering::kFused || stage.has_reduction || !stage.domain.back().is_constant()) return 1;
  return std::max<int64_t>(1, stage.domain.back().constant() / (column_grain(stage) * stage.lanes));
}

bool splits_columns(const Stage& stage) { return column_shares(stage) > 1; }

runtime::DimExpr Schedule::expression(const ir::Dim& dim) {
  runtime::DimExpr result = in_plan(sizes.add(dim));
  for (size_t i = plan.derived.size(); i < sizes.derived().size(); ++i) {
    runtime::DerivedSize& derived = plan.derived.emplace_back();
    for (const ir::SizeTable::Size& term : sizes.derived()[i].terms) derived.terms.push_back(in_plan(term));
    derived.divisor = sizes.derived()[i].divisor;
  }
  return result;
}

const Op* pack_that_may_be_left_out(const Schedule& schedule, ValueId panels) {
  auto uses = schedule.packs.find(panels);
  return uses != schedule.packs.end() && uses->second.may_be_left_out ? schedule.definition.at(panels) : nullptr;
}

Schedule lower(Program& program, const Target& target) {
  Schedule schedule;
  schedule.program = &program;
  schedule.rules = LoweringRules(program, target);
  FusedBlocks blocks = fuse(program, schedule.rules);
  collect_definitions(program.body, schedule.definition);
  schedule.packs = pack_uses(schedule);
  collect_symbols(program, schedule.plan.symbols);
  schedule.sizes = ir::SizeTable(schedule.plan.symbols);
  for (const ir::Dim& dim : ir::sizes_to_check(program))
    schedule.plan.checks.push_back({to_string(dim), schedule.expression(dim)});
  make_plan(schedule, [&](const Block& block) {
    std::vector<Stage>& stages = blocks.at(&block);
    std::set<ValueId> stored = StoredValues(schedule, block, stages).find();
    mark_unrounded(program, block, stages);
    return BlockSchedule{std::move(stages), std::move(stored)};
  });
  return schedule;
}

}  // namespace weft::planning
