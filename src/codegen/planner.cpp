#include "codegen/planner.h"

#include <algorithm>

#include "codegen/merge_dims.h"
#include "codegen/work.h"

namespace weft::codegen {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using passes::Lowering;
using runtime::Storage;

bool is_loop(const Stage& stage) { return stage.lowering == Lowering::kScan && stage.ops[0]->has("loop"); }
bool is_native_scan(const Stage& stage) {
  return stage.lowering == Lowering::kScan && !stage.ops[0]->has("loop") && !stage.ops[0]->has("fallback");
}

class Planner {
 public:
  Planner(Schedule& schedule, const TileRows& tile_rows)
      : schedule_(schedule), program_(*schedule.program), tile_rows_(tile_rows) {}

  void run() {
    const Block& body = program_.body;
    for (size_t i = 0; i < body.args.size(); ++i) add_buffer(body.args[i], Storage::kInput, static_cast<int64_t>(i));
    add_stages(body, schedule_.body, Storage::kOutput);
    add_aliases(body);
    extend_lives(schedule_.body);
    schedule_.plan.stages = describe(schedule_.body, "stage");
    schedule_.plan.stage_count = stages_;
    WorkCounter work(schedule_);
    for (const Op& op : body.ops) work.count(op);
    schedule_.plan.work = work.take();
  }

 private:
  // ---- buffers

  int64_t add_buffer(ValueId value, Storage storage, int64_t index = 0) {
    int64_t id = add_unnamed(program_.type(value), storage, index);
    const std::string& name = program_.values[value].name;
    schedule_.plan.buffers.back().name = name.empty() ? fmt::format("%{}", value) : "%" + name;
    schedule_.buffer[value] = id;
    return id;
  }

  int64_t add_unnamed(const ir::Type& type, Storage storage, int64_t index) {
    runtime::BufferPlan buffer;
    buffer.storage = storage;
    buffer.index = index;
    buffer.element_size = size_of(type.dtype);
    buffer.elements = schedule_.expression(element_count(type.shape));
    schedule_.plan.buffers.push_back(std::move(buffer));
    depth_.push_back(loops_);
    return static_cast<int64_t>(schedule_.plan.buffers.size()) - 1;
  }

  /// Two instances for alternate steps.
  int64_t add_work(const ir::Type& type, std::string name) {
    int64_t id = add_unnamed(type, Storage::kArena, 0);
    schedule_.plan.buffers.back().copies = 2;
    schedule_.plan.buffers.back().name = std::move(name);
    return id;
  }

  void set_life(int64_t buffer, int64_t first, int64_t last) {
    schedule_.plan.buffers[static_cast<size_t>(buffer)].first = first;
    schedule_.plan.buffers[static_cast<size_t>(buffer)].last = last;
  }

  /// Numbers a block's stages and gives their results buffers, those of its results being of the storage `results`.
  /// Returns the buffer of each of these: a value that is yielded twice has two.
  std::vector<int64_t> add_stages(const Block& block, BlockSchedule& stages, Storage results) {
    std::map<ValueId, int64_t> place;
    for (size_t i = 0; i < block.results.size(); ++i) place.emplace(block.results[i], static_cast<int64_t>(i));
    for (Stage& stage : stages.stages) {
      stage.index = stage.last = stages_++;
      std::vector<int64_t> added;
      for (const Op* op : stage.ops)
        for (ValueId value : op->results) {
          if (!stages.stored.contains(value)) continue;
          auto found = place.find(value);
          added.push_back(found == place.end() ? add_buffer(value, Storage::kArena)
                                               : add_buffer(value, results, found->second));
        }
      if (is_loop(stage)) add_loop(stage);
      if (is_native_scan(stage)) add_scan(stage);
      for (int64_t buffer : added) set_life(buffer, stage.index, stage.last);
    }
    return result_buffers(block, results);
  }

  std::vector<int64_t> result_buffers(const Block& block, Storage storage) {
    std::vector<int64_t> buffers;
    std::set<ValueId> seen;
    for (size_t i = 0; i < block.results.size(); ++i) {
      ValueId value = block.results[i];
      int64_t first = schedule_.buffer.at(value);
      if (seen.insert(value).second) {
        buffers.push_back(first);
        continue;
      }
      int64_t further = add_unnamed(program_.type(value), storage, static_cast<int64_t>(i));
      runtime::BufferPlan& plan = schedule_.plan.buffers.back();
      const runtime::BufferPlan& like = schedule_.plan.buffers[static_cast<size_t>(first)];
      plan.name = like.name;
      set_life(further, like.first, like.last);
      schedule_.also[value].push_back(further);
      buffers.push_back(further);
    }
    return buffers;
  }

  void add_loop(Stage& stage) {
    const Op& op = *stage.ops[0];
    ir::ScanView view(op);
    LoopSchedule loop;
    loop.block = schedule_block(schedule_, view.region, false, tile_rows_);
    for (size_t i = 0; i < view.carry_args.size(); ++i)
      loop.carries.push_back(
          add_work(program_.type(view.carry_args[i]), fmt::format("carry {} of stage {}", i, stage.index)));
    ++loops_;
    for (ValueId arg : view.region.args) add_buffer(arg, Storage::kStep);
    loop.results = add_stages(view.region, loop.block, Storage::kStep);
    --loops_;
    stage.last = stages_ - 1;
    for (int64_t buffer : loop.carries) set_life(buffer, stage.index, stage.last);
    for (ValueId arg : view.region.args) set_life(schedule_.buffer.at(arg), stage.index, stage.last);
    schedule_.loops.emplace(&op, std::move(loop));
  }

  void add_scan(const Stage& stage) {
    const Op& op = *stage.ops[0];
    ScanBuffers scan;
    ir::ScanView view(op);
    scan.block = schedule_block(schedule_, view.region, op.attr_or<bool>("batched", false), tile_rows_);
    if (!view.ragged) merge_dims(schedule_, scan.block);
    auto work = [&](ValueId value, std::string name) {
      int64_t id = add_work(program_.type(value), std::move(name));
      set_life(id, stage.index, stage.index);
      return id;
    };
    for (size_t i = 0; i < view.carry_args.size(); ++i)
      scan.carries.push_back(work(view.carry_args[i], fmt::format("carry {} of stage {}", i, stage.index)));
    std::set<ValueId> yielded(view.region.results.begin(), view.region.results.end());
    for (ValueId value : scan.block.stored)
      if (!yielded.contains(value))
        scan.scratch[value] = work(value, fmt::format("step value of stage {}", stage.index));
    schedule_.scans.emplace(&op, std::move(scan));
  }

  /// The buffers of reshapes are those of what they reshape.
  void add_aliases(const Block& block) {
    for (const Op& op : block.ops) {
      if (op.code == OpCode::kReshape) schedule_.buffer[op.results[0]] = schedule_.buffer.at(op.operands[0]);
      if (schedule_.loops.contains(&op)) add_aliases(op.regions[0]);
    }
  }

  // ---- lives

  void extend_lives(const BlockSchedule& block) {
    for (const Stage& stage : block.stages) {
      around_.push_back(&stage);
      for (const Op* op : stage.ops) extend_lives(*op);
      if (is_loop(stage)) extend_lives(schedule_.loops.at(stage.ops[0]).block);
      around_.pop_back();
    }
  }

  void extend_lives(const Op& op) {
    for (ValueId operand : op.operands) extend_life(operand);
    for (const Block& region : op.regions) {
      for (const Op& inner : region.ops) extend_lives(inner);
      for (ValueId result : region.results) extend_life(result);
    }
  }

  /// The value is read in the stage at hand: by the stages of all loops that its buffer is made outside of.
  void extend_life(ValueId value) {
    auto found = schedule_.buffer.find(viewed(schedule_, value));
    if (found == schedule_.buffer.end()) return;
    auto buffer = static_cast<size_t>(found->second);
    if (depth_[buffer] >= around_.size()) return;  // of a loop in the stage, which comes to it itself
    int64_t& last = schedule_.plan.buffers[buffer].last;
    last = std::max(last, around_[depth_[buffer]]->last);
  }

  // ---- stages

  std::vector<runtime::StagePlan> describe(const BlockSchedule& block, const std::string& prefix) {
    std::vector<runtime::StagePlan> plans;
    for (const Stage& stage : block.stages)
      plans.push_back(describe(stage, fmt::format("{}_{}", prefix, plans.size())));
    return plans;
  }

  runtime::StagePlan describe(const Stage& stage, const std::string& symbol) {
    runtime::StagePlan plan;
    plan.symbol = symbol;
    plan.index = stage.index;
    if (stage.lowering == Lowering::kFused || stage.lowering == Lowering::kRowCopy) {
      describe_rows(stage, plan);
    } else if (is_loop(stage)) {
      describe_loop(*stage.ops[0], plan);
    } else if (is_native_scan(stage)) {
      describe_scan(*stage.ops[0], plan);
    } else {
      plan.kind = runtime::StagePlan::Kind::kCall;
      plan.symbol = std::string(info(stage.ops[0]->code).name);
    }
    return plan;
  }

  void describe_rows(const Stage& stage, runtime::StagePlan& plan) {
    plan.kind = runtime::StagePlan::Kind::kRows;
    ir::Shape domain =
        stage.lowering == Lowering::kFused ? stage.domain : program_.type(stage.ops[0]->results[0]).shape;
    ir::Dim columns = domain.back();
    domain.pop_back();
    plan.rows = schedule_.expression(element_count(domain));
    plan.splits_columns = !stage.has_reduction && stage.lowering == Lowering::kFused && columns.is_constant();
    plan.column_shares = plan.splits_columns ? std::max<int64_t>(1, columns.constant() / (2 * stage.lanes)) : 1;
    plan.row_block = stage.row_block;
  }

  void describe_loop(const Op& op, runtime::StagePlan& plan) {
    plan.kind = runtime::StagePlan::Kind::kLoop;
    ir::ScanView view(op);
    const LoopSchedule& loop = schedule_.loops.at(&op);
    plan.length = schedule_.expression(view.length);
    plan.loop.reverse = view.reverse;
    auto buffer = [&](ValueId v) { return schedule_.buffer.at(viewed(schedule_, v)); };
    for (size_t i = 0; i < view.xs.size(); ++i)
      plan.loop.slices.push_back({buffer(view.x_args[i]), buffer(view.xs[i])});
    size_t carries = view.inits.size();
    for (size_t i = 0; i < view.stacks.size(); ++i)
      plan.loop.slices.push_back({loop.results[carries + i], buffer(view.stacks[i])});
    for (size_t i = 0; i < carries; ++i)
      plan.loop.carries.push_back({buffer(view.carry_args[i]), loop.results[i], buffer(view.inits[i]),
                                   buffer(view.carry_results[i]), loop.carries[i]});
    add_carry_copies(view, plan);
    WorkCounter work(schedule_);
    for (const Op& inner : view.region.ops) work.count(inner);
    plan.loop.work = work.take();
    plan.loop.stages = describe(loop.block, plan.symbol);
  }

  void add_carry_copies(const ir::ScanView& view, runtime::StagePlan& plan) {
    for (size_t i = 0; i < view.inits.size(); ++i)
      plan.carry_copies.emplace_back(schedule_.buffer.at(viewed(schedule_, view.inits[i])),
                                     schedule_.buffer.at(view.carry_results[i]));
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
    add_carry_copies(view, plan);
  }

  Schedule& schedule_;
  const Program& program_;
  const TileRows& tile_rows_;
  int64_t stages_ = 0;                // so far
  size_t loops_ = 0;                  // around the block at hand
  std::vector<size_t> depth_;         // of each buffer: the loops around it
  std::vector<const Stage*> around_;  // the stages at hand, from the body's to the innermost loop's
};

}  // namespace

void make_plan(Schedule& schedule, const TileRows& tile_rows) { Planner(schedule, tile_rows).run(); }

}  // namespace weft::codegen
