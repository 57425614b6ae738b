#include "planning/schedule.h"

#include <algorithm>

#include "base/target.h"
#include "ir/size_checks.h"
#include "planning/planner.h"

namespace weft::planning {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using passes::is_reduction;
using passes::Lowering;

/// Divides one block's ops into stages and finds which values need memory.
class BlockScheduler {
 public:
  BlockScheduler(Schedule& schedule, const Block& block, bool batched, const TileRows& tile_rows)
      : schedule_(schedule), program_(*schedule.program), block_(block), tile_rows_(tile_rows) {
    result_.batched = batched;
  }

  BlockSchedule run() {
    for (const Op& op : block_.ops) assign(op);
    for (const Op& op : block_.ops) mark_reads(op);
    for (ValueId result : block_.results) store(result);
    for (Stage& stage : result_.stages) finish(stage);
    return std::move(result_);
  }

 private:
  /// Whether machine code calls a micro-kernel for the op. (A matmul_packed that is a call may have panels of any
  /// width.)
  static bool is_product(const Op& op, Lowering lowering) {
    return op.code == OpCode::kMatmulPacked && lowering == Lowering::kFused;
  }

  void assign(const Op& op) {
    Lowering lowering = passes::lowering_of(program_, op);
    if (lowering == Lowering::kView || lowering == Lowering::kAlias) return;
    check(op.has("stage"), "weft: {} is in no stage: code generation needs the pass fuse, take it out of WEFT_DISABLE",
          info(op.code).name);
    auto index = static_cast<size_t>(op.attr<int64_t>("stage"));
    if (index >= result_.stages.size()) result_.stages.resize(index + 1);
    Stage& stage = result_.stages[index];
    stage.lowering = lowering;
    stage.ops.push_back(&op);
    for (ValueId v : op.results) stage_of_[v] = index;
    if (lowering == Lowering::kFused) {
      stage.domain = passes::domain_of(program_, op, result_.batched);
      stage.rank = static_cast<int64_t>(stage.domain.size());
    }
    if (is_product(op, lowering)) stage.unroll = op.attr<int64_t>("unroll");
    stage.has_reduction = stage.has_reduction || is_reduction(op);
    bool always = lowering != Lowering::kFused || is_reduction(op) || op.code == OpCode::kConcat;
    if (always)
      for (ValueId v : op.results) result_.stored.insert(v);
  }

  void mark_reads(const Op& op) {
    Lowering lowering = passes::lowering_of(program_, op);
    if (lowering == Lowering::kView) return;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      bool in_registers =
          lowering == Lowering::kFused && op.code != OpCode::kMatmulPacked && same_stage(op, op.operands[i]);
      if (!in_registers) store(op.operands[i]);
    }
    for (const Block& region : op.regions) mark_region_reads(region);
  }

  void mark_region_reads(const Block& region) {
    for (const Op& op : region.ops) {
      for (ValueId operand : op.operands) store(operand);
      for (const Block& inner : op.regions) mark_region_reads(inner);
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
      result_.stored.insert(root);
    } else if (auto def = schedule_.definition.find(root);
               def != schedule_.definition.end() && def->second->code == OpCode::kReshape) {
      store(def->second->operands[0]);
    }
  }

  void finish(Stage& stage) const {
    int64_t vectors = 0, panel_lanes = 0;
    bool wide = false;
    for (const Op* op : stage.ops) {
      for (ValueId v : op->operands) wide = wide || program_.type(v).dtype == DType::kF64;
      for (ValueId v : op->results) wide = wide || program_.type(v).dtype == DType::kF64;
      if (is_product(*op, stage.lowering)) {
        vectors = std::max(vectors, op->attr<int64_t>("groups") * op->attr<int64_t>("unroll"));
        panel_lanes = op->attr<int64_t>("lanes");
      }
    }
    // The stage's vectors have as many lanes as the panels of its products, even if it has values of wider types.
    stage.lanes = panel_lanes != 0 ? panel_lanes : target::lanes(wide ? DType::kF64 : DType::kF32);
    stage.row_block =
        std::max<int64_t>(1, (stage.lanes == target::lanes(DType::kF64) ? tile_rows_.f64 : tile_rows_.f32)[vectors]);
  }

  Schedule& schedule_;
  const Program& program_;
  const Block& block_;
  const TileRows& tile_rows_;
  BlockSchedule result_;
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

ValueId viewed(const Schedule& schedule, ValueId value) {
  for (auto def = schedule.definition.find(value); def != schedule.definition.end();
       def = schedule.definition.find(value)) {
    const Op& op = *def->second;
    if (passes::lowering_of(*schedule.program, op) != Lowering::kView || op.operands.empty()) break;
    value = op.operands[0];
  }
  return value;
}

BlockSchedule schedule_block(Schedule& schedule, const Block& block, bool batched, const TileRows& tile_rows) {
  return BlockScheduler(schedule, block, batched, tile_rows).run();
}

Schedule schedule(const Program& fused, const TileRows& tile_rows) {
  Schedule result;
  result.program = &fused;
  collect_definitions(fused.body, result.definition);
  collect_symbols(fused, result.plan.symbols);
  result.sizes = ir::SizeTable(result.plan.symbols);
  for (const ir::Dim& dim : ir::sizes_to_check(fused))
    result.plan.checks.push_back({to_string(dim), result.expression(dim)});
  result.body = schedule_block(result, fused.body, false, tile_rows);
  make_plan(result, tile_rows);
  return result;
}

}  // namespace weft::planning
