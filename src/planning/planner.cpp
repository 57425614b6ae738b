#include "planning/planner.h"

#include <algorithm>
#include <numeric>

#include "base/division.h"
#include "planning/bounded_size.h"
#include "planning/in_place.h"
#include "planning/loops/last_step.h"
#include "planning/loops/sharing.h"
#include "planning/loops/side_by_side.h"
#include "planning/loops/streamed.h"
#include "planning/loops/windows.h"
#include "planning/merge_dims.h"
#include "planning/small_copy.h"
#include "planning/work.h"

namespace weft::planning {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;
using runtime::Storage;

/// Whether the stage contains stages of its own.
bool is_control(const Stage& stage) {
  return stage.lowering == Lowering::kControl || stage.lowering == Lowering::kLoop;
}

class Planner {
 public:
  Planner(Schedule& schedule, const TakeBlock& take_block)
      : schedule_(schedule), program_(*schedule.program), take_block_(take_block) {}

  void run() {
    const Block& body = program_.body;
    passes::for_each_use(body, [&](ValueId value) { used_.insert(value); });
    for (size_t i = 0; i < body.args.size(); ++i) add_buffer(body.args[i], Storage::kInput, static_cast<int64_t>(i));
    std::vector<int64_t> outputs;
    for (size_t i = 0; i < body.results.size(); ++i)
      outputs.push_back(add_buffer(body.results[i], Storage::kOutput, static_cast<int64_t>(i)));
    for (const ir::Donation& donation : program_.donations)
      schedule_.plan.buffers[static_cast<size_t>(outputs[donation.result])].donor =
          static_cast<int64_t>(donation.input);
    schedule_.body = take_block_(body);
    add_stages(body, schedule_.body, outputs);
    add_aliases(body);
    windowed_ = windowed_stages(schedule_, schedule_.body);
    extend_lives(schedule_.body);
    check_donations(outputs);
    calls_out_ = std::ranges::any_of(body.ops, calls_out);
    schedule_.plan.stages = describe(schedule_.body, "stage");
    for (const ScanGroup& group : scan_groups(schedule_, schedule_.body, windowed_)) describe_side_by_side(group);
    schedule_.plan.stage_count = stages_;
    WorkCounter work(schedule_);
    for (const Op& op : body.ops) work.count(op);
    schedule_.plan.work = work.take();
  }

 private:
  /// Checks that an input's memory is written in the last stage that reads the input, or later. One stage may do both,
  /// since fuse has checked that.
  void check_donations(const std::vector<int64_t>& outputs) const {
    for (const ir::Donation& donation : program_.donations) {
      const auto written = static_cast<size_t>(outputs[donation.result]);
      internal_check(schedule_.plan.buffers[donation.input].last <= schedule_.plan.buffers[written].first,
                     "@{}: input {} is read after result {} was stored in its memory", program_.name, donation.input,
                     donation.result);
    }
  }

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
    depth_.push_back(depth_here_);
    return static_cast<int64_t>(schedule_.plan.buffers.size()) - 1;
  }

  /// A buffer with two instances, for even and odd steps.
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

  /// Numbers a block's stages and adds buffers for the values that they store. `results` are the buffers of the block's
  /// results, which exist already. Where a result is a reshape, its operand is stored there.
  void add_stages(const Block& block, BlockSchedule& stages, const std::vector<int64_t>& results) {
    std::map<ValueId, std::vector<int64_t>> places;
    for (size_t i = 0; i < results.size(); ++i) places[stored_for(block.results[i])].push_back(results[i]);
    for (auto& [value, all] : places) {
      schedule_.buffer[value] = all[0];
      schedule_.also[value].assign(all.begin() + 1, all.end());
    }
    for (Stage& stage : stages.stages) {
      stage.index = stage.last = stages_++;
      std::vector<int64_t> stored;
      for (const Op* op : stage.ops)
        for (ValueId value : op->results) {
          if (!stages.stored.contains(value)) continue;
          if (auto found = places.find(value); found != places.end())
            stored.insert(stored.end(), found->second.begin(), found->second.end());
          else
            stored.push_back(add_buffer(value, Storage::kArena));
        }
      if (is_control(stage)) add_control(stage);
      if (stage.lowering == Lowering::kScan) add_scan(stage);
      for (int64_t buffer : stored) set_life(buffer, stage.index, stage.last);
    }
  }

  /// The value that a stage stores in the memory of a block's result (insert_copies).
  ValueId stored_for(ValueId result) const {
    return program_.donations.empty() ? memory_of(schedule_, result) : result;
  }

  void add_control(Stage& stage) {
    const Op& op = *stage.ops[0];
    ControlSchedule& control = schedule_.controls[&op];
    for (const Block& region : op.regions) control.blocks.push_back(take_block_(region));
    std::vector<int64_t> own;  // buffers that live as long as the stage
    if (op.code == OpCode::kCond) {
      // Both branches store to the buffers of the cond's results.
      std::vector<int64_t> results;
      for (ValueId result : op.results) results.push_back(schedule_.buffer.at(result));
      control.results = {results, results};
    } else {
      own = add_loop(op, stage, control);
    }
    ++depth_here_;
    for (size_t i = 0; i < op.regions.size(); ++i) add_stages(op.regions[i], control.blocks[i], control.results[i]);
    --depth_here_;
    stage.last = stages_ - 1;
    for (int64_t buffer : own) set_life(buffer, stage.index, stage.last);
  }

  /// Adds the buffers for the steps of a scan or while, and returns those that live as long as the loop.
  std::vector<int64_t> add_loop(const Op& op, const Stage& stage, ControlSchedule& control) {
    const Block& body = op.regions.back();
    auto carries = op.code == OpCode::kScan ? static_cast<size_t>(op.attr<int64_t>("carries")) : op.operands.size();
    for (size_t i = 0; i < carries; ++i)
      control.carries.push_back(
          add_work(program_.type(body.args[i]), fmt::format("carry {} of stage {}", i, stage.index)));
    std::vector<int64_t> own = control.carries;
    for (size_t i = 0; i < body.args.size(); ++i) {
      own.push_back(add_buffer(body.args[i], Storage::kStep));
      for (const Block& region : op.regions) schedule_.buffer[region.args[i]] = own.back();
    }
    for (const Block& region : op.regions) {
      bool makes_predicate = op.code == OpCode::kWhile && &region != &body;
      std::vector<int64_t>& results = control.results.emplace_back();
      for (ValueId result : region.results)
        results.push_back(add_buffer(result, makes_predicate ? Storage::kArena : Storage::kStep));
      own.insert(own.end(), results.begin(), results.end());
    }
    return own;
  }

  void add_scan(const Stage& stage) {
    const Op& op = *stage.ops[0];
    ScanBuffers scan;
    ir::ScanView view(op);
    scan.block = take_block_(view.region);
    if (!view.ragged) merge_dims(schedule_, scan.block, is_batched(op));
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
    scan.streamed = streamed_ys(schedule_, view, scan.block);
    add_copies_of_members(view, scan, work);
    ColumnSharing sharing = share_columns(schedule_, view, scan.block);
    scan.barrier_before = std::move(sharing.barrier_before);
    scan.crossing = std::move(sharing.crossing);
    scan.for_next_step = stages_for_next_step(schedule_, view, scan.block, used_);
    schedule_.scans.emplace(&op, std::move(scan));
  }

  /// Where members share columns, each computes the replicated stages for itself, so each gets memory for the values of
  /// these stages.
  template <typename AddWork>
  void add_copies_of_members(const ir::ScanView& view, ScanBuffers& scan, AddWork work) {
    auto own = [&](int64_t id) { schedule_.plan.buffers[static_cast<size_t>(id)].copies_a_member = 2; };
    for (const Stage& stage : scan.block.stages) {
      if (splits_columns(stage)) continue;
      for (const Op* op : stage.ops)
        for (ValueId value : op->results) {
          bool is_carry = false;
          for (size_t i = 0; i < view.carry_outs.size(); ++i)
            if (view.carry_outs[i] == value) {
              own(scan.carries[i]);
              is_carry = true;
            }
          if (auto scratch = scan.scratch.find(value); scratch != scan.scratch.end()) own(scratch->second);
          if (is_carry || std::ranges::find(view.y_outs, value) == view.y_outs.end()) continue;
          int64_t id = scan.others[value] = work(value, fmt::format("other members' y of stage {}", stage.index));
          schedule_.plan.buffers[static_cast<size_t>(id)].copies = 0;
          own(id);
        }
    }
  }

  /// A reshape has the buffer of its operand.
  void add_aliases(const Block& block) {
    for (const Op& op : block.ops) {
      if (ir::is_alias(op.code)) schedule_.buffer[op.results[0]] = schedule_.buffer.at(op.operands[0]);
      if (schedule_.controls.contains(&op))
        for (const Block& region : op.regions) add_aliases(region);
    }
  }

  // ---- live ranges

  void extend_lives(const BlockSchedule& block) {
    for (const Stage& stage : block.stages) {
      around_.push_back(&stage);
      for (const Op* op : stage.ops) extend_lives(*op);
      if (is_control(stage))
        for (const BlockSchedule& inner : schedule_.controls.at(stage.ops[0]).blocks) extend_lives(inner);
      around_.pop_back();
    }
  }

  void extend_lives(const Op& op) {
    for (ValueId operand : op.operands) {
      extend_life(operand);
      if (const Op* pack = pack_that_may_be_left_out(schedule_, operand)) extend_life(pack->operands[0]);
    }
    for (const Block& region : op.regions) {
      for (const Op& inner : region.ops) extend_lives(inner);
      for (ValueId result : region.results) extend_life(result);
    }
  }

  /// Extends a live range for a read in the current stage. `around_` holds this stage and the stages around it,
  /// outermost first. The one of them that is in the buffer's own block contains the read, so the buffer lives until
  /// that stage's end.
  void extend_life(ValueId value) {
    auto found = schedule_.buffer.find(viewed(schedule_, value));
    if (found == schedule_.buffer.end()) return;
    auto buffer = static_cast<size_t>(found->second);
    if (depth_[buffer] >= around_.size()) return;  // defined in a region of this stage, which is visited by itself
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
    // A stage in the windows of a scan runs for some of its rows only, which a copy kernel cannot do.
    if (auto copy = windowed_.contains(&stage) ? std::nullopt : small_copy(schedule_, stage)) {
      plan.kind = runtime::StagePlan::Kind::kCall;
      plan.symbol = std::string(info(stage.ops[0]->code).name);
      plan.call = *std::move(copy);
    } else if (stage.lowering == Lowering::kFused || stage.lowering == Lowering::kRowCopy) {
      describe_rows(stage, plan);
    } else if (is_control(stage)) {
      describe_control(*stage.ops[0], plan);
    } else if (stage.lowering == Lowering::kScan) {
      describe_scan(*stage.ops[0], plan);
    } else {
      plan.kind = runtime::StagePlan::Kind::kCall;
      plan.symbol = std::string(info(stage.ops[0]->code).name);
      plan.call = schedule_.rules.target().kernel(schedule_, *stage.ops[0]);
      plan.outside = calls_out(*stage.ops[0]);
    }
    if (calls_out_ || windowed_.contains(&stage)) {
      WorkCounter work(schedule_);
      for (const Op* op : stage.ops) work.count(*op);
      plan.work = work.take();
    }
    return plan;
  }

  void describe_rows(const Stage& stage, runtime::StagePlan& plan) {
    plan.kind = runtime::StagePlan::Kind::kRows;
    ir::Shape domain =
        stage.lowering == Lowering::kFused ? stage.domain : program_.type(stage.ops[0]->results[0]).shape;
    domain.pop_back();
    plan.rows = schedule_.expression(element_count(domain));
    plan.column_shares = column_shares(stage);
    plan.row_block = std::lcm(stage.row_block, std::max<int64_t>(1, stage.row_group));
    add_packs(stage, plan);
  }

  void add_packs(const Stage& stage, runtime::StagePlan& plan) const {
    for (const Op* op : stage.ops)
      for (ValueId operand : op->operands)
        if (pack_that_may_be_left_out(schedule_, operand)) plan.packs.push_back(buffer_of(operand));
  }

  void describe_control(const Op& op, runtime::StagePlan& plan) {
    const ControlSchedule& schedule = schedule_.controls.at(&op);
    runtime::ControlPlan& control = plan.control;
    bool is_while = op.code == OpCode::kWhile;
    plan.kind = op.code == OpCode::kCond ? runtime::StagePlan::Kind::kCond
                : is_while               ? runtime::StagePlan::Kind::kWhile
                                         : runtime::StagePlan::Kind::kLoop;
    for (size_t i = 0; i < op.regions.size(); ++i) {
      const char* which[] = {"a", "b"};
      control.regions.push_back(describe(schedule.blocks[i], plan.symbol + (op.regions.size() > 1 ? which[i] : "")));
    }
    for (const auto& region : control.regions)
      plan.outside = plan.outside || std::ranges::any_of(region, &runtime::StagePlan::outside);
    if (op.code == OpCode::kCond) control.predicate = buffer_of(op.operands[0]);
    if (is_while) control.predicate = schedule.results[0][0];
    if (op.code == OpCode::kScan) describe_slices(ir::ScanView(op), schedule, plan);
    if (op.code != OpCode::kCond) describe_carries(op, schedule, plan);
    WorkCounter work(schedule_);
    for (const Block& region : op.regions)
      for (const Op& inner : region.ops) work.count(inner);
    control.work = work.take();
  }

  void describe_carries(const Op& loop, const ControlSchedule& schedule, runtime::StagePlan& plan) {
    const Block& body = loop.regions.back();
    const std::vector<bool> in_place = carries_in_place(schedule_, loop, schedule.blocks.back());
    for (size_t i = 0; i < schedule.carries.size(); ++i) {
      const int64_t init = buffer_of(loop.operands[i]), result = buffer_of(loop.results[i]);
      plan.control.carries.push_back(
          {buffer_of(body.args[i]), schedule.results.back()[i], init, result, schedule.carries[i], in_place[i]});
      plan.carry_copies.push_back({init, result});
      if (in_place[i]) schedule_.plan.buffers[static_cast<size_t>(schedule.carries[i])].copies = 0;
    }
  }

  void describe_slices(const ir::ScanView& view, const ControlSchedule& schedule, runtime::StagePlan& plan) {
    plan.length = schedule_.expression(view.length);
    plan.control.reverse = view.reverse;
    for (size_t i = 0; i < view.xs.size(); ++i)
      plan.control.slices.push_back({buffer_of(view.x_args[i]), buffer_of(view.xs[i])});
    for (size_t i = 0; i < view.stacks.size(); ++i)
      plan.control.slices.push_back({schedule.results[0][view.inits.size() + i], buffer_of(view.stacks[i])});
  }

  int64_t buffer_of(ValueId value) const { return schedule_.buffer.at(viewed(schedule_, value)); }

  void describe_scan(const Op& op, runtime::StagePlan& plan) {
    plan.kind = runtime::StagePlan::Kind::kScan;
    ir::ScanView view(op);
    const ScanBuffers& scan = schedule_.scans.at(&op);
    plan.length = schedule_.expression(view.length);
    plan.splits_rows = is_batched(op);
    if (plan.splits_rows) plan.rows = schedule_.expression(program_.type(view.region.args[0]).shape[0]);
    for (const Stage& stage : scan.block.stages) {
      if (splits_columns(stage))
        plan.column_shares = std::min(plan.column_shares == 1 ? INT64_MAX : plan.column_shares, column_shares(stage));
      plan.row_block = std::max(plan.row_block, stage.row_block);
      add_packs(stage, plan);
    }
    describe_step(scan, plan);
    describe_windows(op, plan);
    if (view.ragged) {
      plan.batch_sizes = buffer_of(view.ragged->batch_sizes);
      plan.packed = schedule_.expression(view.ragged->packed);
    }
    for (size_t i = 0; i < view.inits.size(); ++i)
      plan.carry_copies.push_back({buffer_of(view.inits[i]), buffer_of(view.carry_results[i])});
  }

  void describe_side_by_side(const ScanGroup& group) {
    const int64_t first = group.scans[0];
    auto from_first = [&](std::vector<int64_t> places) {
      for (int64_t& place : places) place -= first;
      return places;
    };
    runtime::StagePlan::SideBySide& plan = schedule_.plan.stages[static_cast<size_t>(first)].side_by_side;
    plan = {from_first(group.before), from_first(group.scans), from_first(group.after), {}};
    for (auto [scan, leader] : group.follows) plan.follows.push_back({scan, leader});
  }

  void describe_windows(const Op& scan, runtime::StagePlan& plan) {
    plan.reverse = ir::ScanView(scan).reverse;
    for (const Stage& stage : schedule_.body.stages) {
      auto windowed = windowed_.find(&stage);
      if (windowed == windowed_.end() || schedule_.body.stages[windowed->second].ops[0] != &scan) continue;
      runtime::StagePlan::Window& window = plan.windows.emplace_back();
      window.stage = stage.index;
      window.column_shares = column_shares(stage);
      for (const Op* op : stage.ops) {
        if (const auto tile = schedule_.rules.tile(*op)) window.weight_bytes += tile->weight_bytes;
        for (ValueId value : op->results)
          if (schedule_.body.stored.contains(value)) window.buffers.push_back(buffer_of(value));
        passes::for_each_use(*op, [&](ValueId value) { add_read(value, window); });
      }
    }
  }

  void add_read(ValueId value, runtime::StagePlan::Window& window) const {
    auto add = [&](ValueId each) {
      if (auto found = schedule_.buffer.find(viewed(schedule_, each)); found != schedule_.buffer.end())
        window.reads.push_back(found->second);
    };
    add(value);
    if (const Op* pack = pack_that_may_be_left_out(schedule_, value)) add(pack->operands[0]);
  }

  /// The cost model's numbers for one step, by how threads can share the work.
  void describe_step(const ScanBuffers& scan, runtime::StagePlan& plan) {
    plan.step.barriers = std::ranges::count(scan.barrier_before, true);
    for (ValueId value : scan.crossing) {
      const ir::Type& type = program_.type(value);
      plan.step.crossing.push_back(
          schedule_.expression(bounded_product(ir::Dim(size_of(type.dtype)), bounded_count(type.shape))));
    }
    for (const Stage& stage : scan.block.stages) {
      if (stage.unroll > 0 && splits_columns(stage)) set_units(stage, plan.step);
      for (const Op* op : stage.ops) {
        WorkCounter work(schedule_);
        work.count(*op);
        const auto tile = schedule_.rules.tile(*op);
        if (tile) plan.step.weight_bytes += tile->weight_bytes;
        auto& terms = !splits_columns(stage) ? plan.step.replicated : tile ? plan.step.products : plan.step.split;
        for (runtime::DimExpr& term : work.take()) terms.push_back(std::move(term));
      }
    }
  }

  /// Sets StepWork::units and grain. Of the stages with products, the one with the fewest shares decides.
  static void set_units(const Stage& stage, runtime::StepWork& step) {
    const int64_t units = ceil_div(stage.domain.back().constant(), stage.lanes), grain = column_grain(stage);
    if (step.grain > 0 && ceil_div(step.units, step.grain) <= ceil_div(units, grain)) return;
    step.units = units;
    step.grain = grain;
  }

  bool is_batched(const Op& scan) const { return schedule_.rules.decision(scan).batched; }

  Schedule& schedule_;
  const Program& program_;
  const TakeBlock& take_block_;
  std::set<ValueId> used_;                   // values that something reads
  std::map<const Stage*, size_t> windowed_;  // as windowed_stages gives them
  bool calls_out_ = false;                   // calls are made between the team's parallel regions
  int64_t stages_ = 0;                       // numbered so far
  size_t depth_here_ = 0;                    // how many stages are around the block at hand
  std::vector<size_t> depth_;                // for each buffer, how many stages are around its block
  std::vector<const Stage*> around_;         // the stages around the stage at hand, outermost first, and itself
};

}  // namespace

void make_plan(Schedule& schedule, const TakeBlock& take_block) { Planner(schedule, take_block).run(); }

bool calls_out(const Op& op) {
  return ir::traits_of(op.code).calls_out || std::ranges::any_of(op.regions, [](const Block& region) {
           return std::ranges::any_of(region.ops, calls_out);
         });
}

}  // namespace weft::planning
