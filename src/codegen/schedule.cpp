#include "codegen/schedule.h"

#include <algorithm>

namespace weft::codegen {
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
    if (lowering == Lowering::kFused) stage.domain = passes::domain_of(program_, op, result_.batched);
    if (op.code == OpCode::kMatmulPacked) stage.unroll = op.attr<int64_t>("unroll");
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
    int64_t vectors = 0;
    bool wide = false;
    for (const Op* op : stage.ops) {
      for (ValueId v : op->operands) wide = wide || program_.type(v).dtype == DType::kF64;
      for (ValueId v : op->results) wide = wide || program_.type(v).dtype == DType::kF64;
      if (op->code == OpCode::kMatmulPacked)
        vectors = std::max(vectors, op->attr<int64_t>("groups") * op->attr<int64_t>("unroll"));
    }
    stage.lanes = wide ? 8 : 16;
    stage.row_block = std::max<int64_t>(1, (wide ? tile_rows_.f64 : tile_rows_.f32)[vectors]);
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

/// Makes the plan: a buffer for everything stored, and the stages' descriptions.
class Planner {
 public:
  Planner(Schedule& schedule, const TileRows& tile_rows)
      : schedule_(schedule), program_(*schedule.program), tile_rows_(tile_rows) {}

  void run() {
    const Block& body = program_.body;
    for (size_t i = 0; i < body.args.size(); ++i)
      add_buffer(body.args[i], runtime::Storage::kInput, static_cast<int64_t>(i));
    for (size_t i = 0; i < body.results.size(); ++i) output_of_[body.results[i]] = static_cast<int64_t>(i);
    for (size_t stage = 0; stage < schedule_.body.stages.size(); ++stage)
      for (const Op* op : schedule_.body.stages[stage].ops) add_results(*op, static_cast<int64_t>(stage));
    for (const Op& op : body.ops)
      if (op.code == OpCode::kReshape) schedule_.buffer[op.results[0]] = schedule_.buffer.at(op.operands[0]);
    for (size_t stage = 0; stage < schedule_.body.stages.size(); ++stage) {
      for (const Op* op : schedule_.body.stages[stage].ops) extend_lives(*op, static_cast<int64_t>(stage));
      describe(static_cast<int64_t>(stage));
    }
    for (const Op& op : body.ops) count_work(op, ir::Dim(1));
  }

 private:
  int64_t add_buffer(ValueId value, runtime::Storage storage, int64_t index) {
    int64_t id = add_unnamed(program_.type(value), storage, index);
    const std::string& name = program_.values[value].name;
    schedule_.plan.buffers.back().name = name.empty() ? fmt::format("%{}", value) : "%" + name;
    schedule_.buffer[value] = id;
    return id;
  }

  int64_t add_unnamed(const ir::Type& type, runtime::Storage storage, int64_t index) {
    runtime::BufferPlan buffer;
    buffer.storage = storage;
    buffer.index = index;
    buffer.element_size = size_of(type.dtype);
    buffer.elements = schedule_.expression(element_count(type.shape));
    schedule_.plan.buffers.push_back(std::move(buffer));
    return static_cast<int64_t>(schedule_.plan.buffers.size()) - 1;
  }

  bool is_on_rows(const Op& op, const ir::Ragged& ragged) const {
    auto on_rows = [&](ValueId v) { return has_rows(program_.type(v), ragged); };
    return op.regions.empty() &&
           (std::ranges::any_of(op.operands, on_rows) || std::ranges::any_of(op.results, on_rows));
  }

  /// Multiply-adds of products; for other ops a few an element.
  void count_work(const Op& op, const ir::Dim& times, const ir::Ragged* ragged = nullptr) {
    constexpr int64_t kPerElement = 4;
    auto shape_of = [&](ValueId v) {
      const ir::Type& type = program_.type(v);
      if (!ragged || !has_rows(type, *ragged)) return type.shape;
      return ir::stacked(type, ir::Dim(1), *ragged).shape;
    };
    if (op.code == OpCode::kScan) {
      ir::ScanView view(op);
      for (const Op& inner : view.region.ops) {
        if (view.ragged && is_on_rows(inner, *view.ragged))
          count_work(inner, times, &*view.ragged);
        else
          count_work(inner, times * view.length);
      }
    }
    if (!op.regions.empty() || op.results.empty() || passes::is_view(op.code)) return;
    ir::Dim elements = element_count(shape_of(op.results[0])) * times;
    ir::Shape first = op.operands.empty() ? ir::Shape{} : shape_of(op.operands[0]);
    if (op.code == OpCode::kMatmulPacked || op.code == OpCode::kMatmul)
      elements = elements * first.back();
    else if (op.code == OpCode::kOuter)
      elements = element_count(first) * program_.type(op.operands[1]).shape.back() * times;
    else
      elements = elements * ir::Dim(kPerElement);
    schedule_.plan.work.push_back(schedule_.expression(elements));
  }

  void set_life(int64_t buffer, int64_t stage) {
    schedule_.plan.buffers[static_cast<size_t>(buffer)].first = stage;
    schedule_.plan.buffers[static_cast<size_t>(buffer)].last = stage;
  }

  void add_results(const Op& op, int64_t stage) {
    for (ValueId result : op.results) {
      if (!schedule_.body.stored.contains(result)) continue;
      auto output = output_of_.find(result);
      bool is_output = output != output_of_.end();
      set_life(add_buffer(result, is_output ? runtime::Storage::kOutput : runtime::Storage::kArena,
                          is_output ? output->second : 0),
               stage);
    }
    if (op.code == OpCode::kScan && !op.has("fallback")) add_scan_buffers(op, stage);
  }

  void add_scan_buffers(const Op& op, int64_t stage) {
    ScanBuffers scan;
    ir::ScanView view(op);
    scan.block = BlockScheduler(schedule_, view.region, op.attr_or<bool>("batched", false), tile_rows_).run();
    auto work = [&](const ir::Type& type, std::string name) {
      int64_t id = add_unnamed(type, runtime::Storage::kArena, 0);
      schedule_.plan.buffers.back().copies = 2;
      schedule_.plan.buffers.back().name = std::move(name);
      set_life(id, stage);
      return id;
    };
    for (size_t i = 0; i < view.carry_args.size(); ++i)
      scan.carries.push_back(work(program_.type(view.carry_args[i]), fmt::format("carry {} of stage {}", i, stage)));
    std::set<ValueId> yielded(view.region.results.begin(), view.region.results.end());
    for (ValueId value : scan.block.stored)
      if (!yielded.contains(value))
        scan.scratch[value] = work(program_.type(value), fmt::format("step value of stage {}", stage));
    schedule_.scans.emplace(&op, std::move(scan));
  }

  void extend_life(ValueId value, int64_t stage) {
    auto found = schedule_.buffer.find(viewed(schedule_, value));
    if (found == schedule_.buffer.end()) return;
    int64_t& last = schedule_.plan.buffers[static_cast<size_t>(found->second)].last;
    last = std::max(last, stage);
  }

  void extend_lives(const Op& op, int64_t stage) {
    for (ValueId operand : op.operands) extend_life(operand, stage);
    for (const Block& region : op.regions) {
      for (const Op& inner : region.ops) extend_lives(inner, stage);
      for (ValueId result : region.results) extend_life(result, stage);
    }
  }

  void describe(int64_t index) {
    const Stage& stage = schedule_.body.stages[static_cast<size_t>(index)];
    runtime::StagePlan plan;
    plan.symbol = fmt::format("stage_{}", index);
    if (stage.lowering == Lowering::kFused || stage.lowering == Lowering::kRowCopy) {
      plan.kind = runtime::StagePlan::Kind::kRows;
      ir::Shape domain =
          stage.lowering == Lowering::kFused ? stage.domain : program_.type(stage.ops[0]->results[0]).shape;
      ir::Dim columns = domain.back();
      domain.pop_back();
      plan.rows = schedule_.expression(element_count(domain));
      plan.splits_columns = !stage.has_reduction && stage.lowering == Lowering::kFused && columns.is_constant();
      plan.column_shares = plan.splits_columns ? std::max<int64_t>(1, columns.constant() / (2 * stage.lanes)) : 1;
      plan.row_block = stage.row_block;
    } else if (stage.lowering == Lowering::kScan && !stage.ops[0]->has("fallback")) {
      describe_scan(*stage.ops[0], plan);
    } else {
      plan.kind = runtime::StagePlan::Kind::kCall;
      plan.symbol = std::string(info(stage.ops[0]->code).name);
    }
    schedule_.plan.stages.push_back(std::move(plan));
  }

  void describe_scan(const Op& op, runtime::StagePlan& plan) {
    plan.kind = runtime::StagePlan::Kind::kScan;
    ir::ScanView view(op);
    const ScanBuffers& scan = schedule_.scans.at(&op);
    plan.length = schedule_.expression(view.length);
    plan.splits_rows = scan.block.batched;
    if (scan.block.batched) plan.rows = schedule_.expression(program_.type(view.region.args[0]).shape[0]);
    int64_t shares = INT64_MAX;
    for (const Stage& stage : scan.block.stages) {
      bool splits = stage.lowering == Lowering::kFused && stage.domain.back().is_constant();
      int64_t columns = splits ? stage.domain.back().constant() : 1;
      if (stage.unroll != 0 || columns > 1)
        shares = std::min(shares, std::max<int64_t>(1, columns / (2 * stage.lanes)));
      plan.row_block = std::max(plan.row_block, stage.row_block);
    }
    plan.column_shares = shares == INT64_MAX ? 1 : shares;
    if (view.ragged) {
      plan.batch_sizes = schedule_.buffer.at(viewed(schedule_, view.ragged->batch_sizes));
      plan.packed = schedule_.expression(view.ragged->packed);
    }
    plan.splits_columns = plan.column_shares > 1;
    for (size_t i = 0; i < view.inits.size(); ++i)
      plan.carry_copies.emplace_back(schedule_.buffer.at(viewed(schedule_, view.inits[i])),
                                     schedule_.buffer.at(view.carry_results[i]));
  }

  Schedule& schedule_;
  const Program& program_;
  const TileRows& tile_rows_;
  std::map<ValueId, int64_t> output_of_;
};

void collect_symbols(const Program& program, std::vector<std::string>& symbols) {
  std::set<std::string> names;
  for (ValueId arg : program.body.args)
    for (const ir::Dim& dim : program.type(arg).shape) names.insert(dim.symbols.begin(), dim.symbols.end());
  symbols.assign(names.begin(), names.end());
}

}  // namespace

runtime::DimExpr Schedule::expression(const ir::Dim& dim) const {
  runtime::DimExpr result{dim.factor, {}};
  for (const std::string& symbol : dim.symbols) {
    auto found = std::ranges::lower_bound(plan.symbols, symbol);
    internal_check(found != plan.symbols.end() && *found == symbol, "no symbol {}", symbol);
    result.symbols.push_back(found - plan.symbols.begin());
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

Schedule schedule(const Program& fused, const TileRows& tile_rows) {
  Schedule result;
  result.program = &fused;
  collect_definitions(fused.body, result.definition);
  collect_symbols(fused, result.plan.symbols);
  result.body = BlockScheduler(result, fused.body, false, tile_rows).run();
  Planner(result, tile_rows).run();
  return result;
}

}  // namespace weft::codegen
