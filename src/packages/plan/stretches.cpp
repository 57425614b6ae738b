#include "packages/plan/stretches.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "packages/plan/rings.h"

namespace weft::packages {
namespace {

using ir::Op;
using ir::ValueId;

/// The most bytes that a call of several steps may keep of states: it keeps every state that is no ring for each step.
constexpr int64_t kStates = int64_t{1} << 18;

class Stretcher {
 public:
  Stretcher(const Bound& step, const Tasks& tasks, int64_t steps) : step_(step), tasks_(tasks), steps_(steps) {
    for (size_t state = 0; state < step.states(); ++state) rings_.push_back(ring_of(step, state, steps));
  }

  std::optional<std::vector<Stretch>> run() {
    // Of a window that moves backwards the new rows aren't in the order of the steps.
    if (std::ranges::any_of(rings_, [](const auto& ring) { return ring && ring->at_front; })) return std::nullopt;
    if (bytes_of_states() * steps_ > kStates) return std::nullopt;
    put_in_order();
    join();
    if (2 * products_of(true) > products_of(false)) return std::nullopt;
    std::vector<Stretch> stretches;
    for (size_t at = 0; at < order_.size(); ++at) {
      if (at == 0 || !joined_[at - 1]) stretches.push_back({{}, step_by_step_[at]});
      stretches.back().tasks.push_back(order_[at]);
    }
    return stretches;
  }

 private:
  int64_t bytes_of_states() const {
    int64_t bytes = 0;
    for (size_t state = 0; state < step_.states(); ++state) {
      const ir::Type& type = step_.program().type(step_.program().body.args[state]);
      if (!rings_[state]) bytes += ir::element_count(type.shape).constant() * size_of(type.dtype);
    }
    return bytes;
  }

  /// What a nest reads from memory. The rows that a ring keeps are not read.
  std::set<ValueId> reads(size_t task) const {
    const ValueId made = tasks_.tasks[task].values[0];
    for (size_t state = 0; state < rings_.size(); ++state) {
      if (!rings_[state] || step_.program().body.results[state] != made) continue;
      std::set<ValueId> all;
      for (ValueId part : rings_[state]->made) from_memory(part, all);
      return all;
    }
    return tasks_.tasks[task].reads;
  }

  void from_memory(ValueId value, std::set<ValueId>& all) const {
    if (step_.is_constant(value)) return;
    if (tasks_.task_of.contains(value) || step_.argument(value)) {
      all.insert(value);
      return;
    }
    for (ValueId operand : step_.op_of(value)->operands) from_memory(operand, all);
  }

  bool writes_ring(size_t task) const {
    for (size_t state = 0; state < rings_.size(); ++state)
      if (rings_[state] && step_.program().body.results[state] == tasks_.tasks[task].values[0]) return true;
    return false;
  }

  /// Orders the nests. The nest that writes a ring's new rows comes as soon as the nests whose values it reads, so that
  /// no reader of the new window comes before it. Readers of the old window may come later: its rows stay in memory.
  void put_in_order() {
    std::vector<bool> placed(tasks_.tasks.size());
    const auto is_ready = [&](size_t task) {
      return std::ranges::all_of(reads(task), [&](ValueId value) {
        const auto maker = tasks_.task_of.find(value);
        return maker == tasks_.task_of.end() || placed[maker->second];
      });
    };
    const auto place = [&](size_t task) {
      placed[task] = true;
      order_.push_back(task);
    };
    const auto place_rings = [&] {
      for (size_t task = 0; task < placed.size(); ++task)
        if (!placed[task] && writes_ring(task) && is_ready(task)) place(task);
    };
    place_rings();
    for (size_t task = 0; task < placed.size(); ++task) {
      if (placed[task]) continue;
      place(task);
      place_rings();
    }
  }

  /// Joins the nests from the first reader of a state to the nest that computes the next state, unless that nest comes
  /// before all readers.
  void join() {
    joined_.assign(order_.size(), false);
    step_by_step_.assign(order_.size(), false);
    for (size_t state = 0; state < step_.states(); ++state) {
      const size_t writer = tasks_.task_of.at(step_.program().body.results[state]);
      const auto last = static_cast<size_t>(std::ranges::find(order_, writer) - order_.begin());
      for (size_t first = 0; first <= last; ++first) {
        if (!reads(order_[first]).contains(step_.program().body.args[state])) continue;
        for (size_t at = first; at <= last; ++at) {
          step_by_step_[at] = true;
          if (at < last) joined_[at] = true;
        }
        break;
      }
    }
  }

  /// Multiply-adds of products by constant weights, in all nests or in those that run step by step.
  int64_t products_of(bool step_by_step) const {
    int64_t all = 0;
    for (size_t at = 0; at < order_.size(); ++at) {
      if (step_by_step && !step_by_step_[at]) continue;
      std::set<ValueId> seen;
      const std::function<void(ValueId)> add = [&](ValueId value) {
        const Op* op = step_.op_of(value);
        if (op == nullptr || step_.is_constant(value) || !seen.insert(value).second) return;
        if (is_product(step_, *op)) {
          int64_t count = sizes_of(step_.program(), op->operands[0]).back();
          for (int64_t size : sizes_of(step_.program(), value)) count *= size;
          all += count;
        }
        for (ValueId operand : op->operands)
          if (!tasks_.task_of.contains(operand)) add(operand);
      };
      for (ValueId value : tasks_.tasks[order_[at]].values) add(value);
    }
    return all;
  }

  const Bound& step_;
  const Tasks& tasks_;
  int64_t steps_;
  std::vector<std::optional<Ring>> rings_;  // by state
  std::vector<size_t> order_;
  std::vector<bool> joined_, step_by_step_;  // by place in the order; whether the next one is in the same stretch
};

}  // namespace

Plan plan_of(const Bound& step, int64_t steps) {
  Plan plan{divide(step, steps), steps, {}};
  if (steps == 1) return plan;
  if (!plan.tasks.may_fail)
    if (auto stretches = Stretcher(step, plan.tasks, steps).run()) {
      plan.stretches = std::move(*stretches);
      return plan;
    }
  return {divide(step, 1), 1, {}};
}

}  // namespace weft::packages
