// Calls of several steps: the nests of one step, each for all steps of the call.
#include <algorithm>
#include <bit>

#include "packages/emit/emitter.h"

namespace weft::packages {

using ir::ValueId;
using llvm::Value;

namespace {

/// Multiply-adds in a turn of a loop over steps, which is all written out.
constexpr int64_t kWritten = 1024;
/// Steps in a vector, if there are several. Each product takes a shuffle, in place of a load for each step: two steps
/// gain nothing by it (Zen 5: a WaveNet of 8 and 4 channels takes 87 ns a sample, with two steps in a vector 91).
constexpr int64_t kSideBySide = 4;

}  // namespace

llvm::Function* Emitter::emit_steps(const std::string& name) {
  if (plan_.steps == 1) return nullptr;
  for (ValueId value : scratch_) {
    const Memory::Slot& slot = memory_.slots.at(value);
    memory_.give_back(slot.offset, slot.bytes);
  }
  scratch_.clear();
  forget_rounded(tasks_.tasks.size());
  buffers_.clear();
  is_where_read_next_.clear();
  const auto is_state = [&](ValueId value) {
    const auto argument = step_.argument(value);
    return argument && *argument < step_.states();
  };
  std::erase_if(memory_.slots, [&](const auto& slot) { return !is_state(slot.first); });
  last_reader_.clear();
  for (size_t stretch = 0; stretch < plan_.stretches.size(); ++stretch)
    for (size_t task : plan_.stretches[stretch].tasks)
      for (ValueId value : tasks_.tasks[task].reads) last_reader_[value] = stretch;
  for (ValueId result : program_.body.results) last_reader_[result] = plan_.stretches.size();
  for (size_t stretch = 0; stretch < plan_.stretches.size(); ++stretch)
    for (size_t task : plan_.stretches[stretch].tasks)
      for (ValueId left : rounded_for(tasks_.tasks[task])) last_rounded_[left] = stretch;
  steps_ = plan_.steps;
  begin(name);
  llvm::Function* whole = function_;
  find_windows();
  copy_states_before();
  stage_inputs();
  for (size_t stretch = 0; stretch < plan_.stretches.size(); ++stretch) {
    cut_if_long(name);
    free_what_is_read_no_longer(stretch);
    emit_stretch(plan_.stretches[stretch]);
  }
  current_.clear();
  known_.clear();
  computed_.clear();
  give_stacks();
  return whole;
}

void Emitter::over_steps(unsigned at_once, const std::function<void()>& body, unsigned side_by_side) {
  if (steps_ == 1 || step_by_step_) return body();
  at_once_ = at_once;
  side_by_side_ = side_by_side;
  loop(steps_, static_cast<int64_t>(at_once) * side_by_side, [&](Value* first) {
    const auto scope = std::pair(known_, computed_);
    first_step_ = first;
    body();
    std::tie(known_, computed_) = scope;
  });
  at_once_ = side_by_side_ = 1;
  now_ = 0;
  first_step_ = nullptr;
}

/// How many steps a vector holds side by side: more than one only where a row of the nest takes at most half a vector.
/// A vector then holds the row of one step behind the row of another, and one instruction computes all of these steps.
unsigned Emitter::steps_in_vector(const std::vector<ValueId>& values, const std::vector<Sum>& sums,
                                  const Blocks& blocks) const {
  if (steps_ == 1 || step_by_step_ || blocks.count * blocks.vectors > 1) return 1;
  for (DType dtype : {DType::kF32, DType::kF64})
    for (const std::vector<Sum> some = of_type(sums, dtype); const Group& group : groups_of(some))
      if (!is_straight(some, group, blocks)) return 1;
  const std::vector<int64_t> domain = sizes(values[0]);
  if (domain.empty() || ir::element_count(program_.type(values[0]).shape).constant() != domain.back()) return 1;
  if (!std::ranges::all_of(values, [&](ValueId value) { return is_lanewise(value, true); })) return 1;
  const int64_t most = target_.vector_bytes / std::max<int64_t>(size_of(dtype(values[0])), 4);
  const int64_t steps = std::min(most / blocks.lanes, steps_);
  return steps < kSideBySide ? 1 : static_cast<unsigned>(steps);
}

/// The same for the new rows of a ring, if nothing has to be left as it is behind them.
unsigned Emitter::steps_in_rows(const Task& task) const {
  const auto ring = rings_.find(task.values[0]);
  if (steps_ == 1 || step_by_step_ || ring == rings_.end() || ring->second.first.made.size() > 1) return 1;
  const ValueId made = ring->second.first.made[0];
  const Blocks blocks = blocks_for(made);
  return blocks.columns == blocks.lanes ? steps_in_vector({made}, {}, blocks) : 1;
}

/// Whether the value's elements are computed from memory lane by lane, apart from elements that all lanes share.
/// `in_lanes`: the value has lanes.
bool Emitter::is_lanewise(ValueId value, bool in_lanes) const {
  const ir::Op* op = step_.op_of(value);
  if (op == nullptr || step_.is_constant(value)) return true;
  if (buffers_.contains(value) && !current_.contains(value)) return true;
  if (is_product(step_, *op)) return in_lanes;
  const auto follows = [&](ValueId operand) { return is_lanewise(operand, in_lanes); };
  if (ir::info(op->code).op_class == ir::OpClass::kElementwise || ir::is_range(op->code))
    return std::ranges::all_of(op->operands, follows);
  const std::vector<int64_t> outer = sizes(value), inner = sizes(op->operands[0]);
  if (ir::is_repeated(op->code)) {
    const auto& dims = op->attr<std::vector<int64_t>>("dims");
    const auto lane = std::ranges::find(dims, static_cast<int64_t>(outer.size()) - 1);
    return is_lanewise(op->operands[0], in_lanes && lane != dims.end()) &&
           (lane == dims.end() || lane + 1 == dims.end());
  }
  return ir::is_alias(op->code) && !outer.empty() && !inner.empty() && outer.back() == inner.back() &&
         follows(op->operands[0]);
}

/// How many steps share the loads of weights: as many as there are registers for, and one more vector for weights.
unsigned Emitter::steps_for(const std::vector<Sum>& sums, const Blocks& blocks, unsigned side_by_side) const {
  if (steps_ == 1 || step_by_step_ || sums.empty()) return 1;
  int64_t registers = 0, products = 0;
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const std::vector<Sum> some = of_type(sums, dtype);
    if (some.empty()) continue;
    const std::vector<Group> groups = groups_of(some);
    registers += static_cast<int64_t>(some.size()) * blocks.vectors * splits_for(some, groups, blocks);
    for (const auto& [g, run] : runs_of(some, groups, blocks))
      if (is_straight(some, groups[g], blocks))
        products += static_cast<int64_t>(groups[g].size()) * turns(some[groups[g][0].first].parts[groups[g][0].second]);
  }
  const int64_t most =
      std::min(target_.registers * 3 / 4 / registers, kWritten / std::max<int64_t>(products * blocks.vectors, 1));
  return static_cast<unsigned>(
      std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(most, 1, steps_ / side_by_side))));
}

/// Memory for the states before each step, and behind the last one, but for rings.
void Emitter::copy_states_before() {
  for (size_t i = 0; i < step_.states(); ++i) {
    const ValueId state = program_.body.args[i];
    if (rings_.contains(program_.body.results[i])) continue;
    const Memory::Slot& slot = memory_.slots.at(state);
    Buffer given = in_state(state, slot), all = given;
    given.step = 0;
    all.base = b_.CreateGEP(b_.getInt8Ty(), state_, number(memory_.take(slot.bytes * (steps_ + 1))));
    copy(given, all, sizes(state), dtype(state));
    buffers_[state] = all;
  }
}

void Emitter::emit_stretch(const Stretch& stretch) {
  const auto emit = [&] {
    for (size_t task : stretch.tasks) {
      emit_task(tasks_.tasks[task]);
      keep_states(tasks_.tasks[task]);
    }
  };
  if (!stretch.step_by_step) return emit();
  loop(steps_, 1, [&](Value* step) {
    first_step_ = step;
    step_by_step_ = true;
    emit();
  });
  step_by_step_ = false;
  first_step_ = nullptr;
}

/// Copies new states that aren't yet where the next step reads them.
void Emitter::keep_states(const Task& task) {
  for (size_t i = 0; i < step_.states(); ++i) {
    const ValueId state = program_.body.args[i], made = program_.body.results[i];
    if (std::ranges::find(task.values, made) == task.values.end() || rings_.contains(made)) continue;
    if (is_where_read_next_.contains(made)) continue;
    const Buffer next = next_state(state);
    current_.clear();
    over_steps(1, [&] { copy(buffers_.at(made), next, sizes(state), dtype(state)); });
  }
}

/// A state as the next step reads it.
Buffer Emitter::next_state(ValueId state) {
  Buffer next = buffers_.at(state);
  next.base = b_.CreateGEP(b_.getInt8Ty(), next.base, number(next.step));
  return next;
}

/// The outputs of all steps to the caller, and the states behind the last step to their memory.
void Emitter::give_stacks() {
  over_steps(1, [&] { give_outputs(); });
  for (size_t i = 0; i < step_.states(); ++i) {
    const ValueId state = program_.body.args[i];
    if (rings_.contains(program_.body.results[i])) continue;
    Buffer last = buffers_.at(state), kept = in_state(state, memory_.slots.at(state));
    last.base = b_.CreateGEP(b_.getInt8Ty(), last.base, number(last.step * steps_));
    last.step = kept.step = 0;
    copy(last, kept, sizes(state), dtype(state));
  }
  end_turns();
  b_.CreateRet(b_.getInt32(0));
}

}  // namespace weft::packages
