#include "planning/in_place.h"

#include <algorithm>

#include "passes/rewrite.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

class CarryMemory {
 public:
  CarryMemory(const Schedule& schedule, const ir::Block& step, const BlockSchedule& stages)
      : schedule_(schedule), step_(step), stages_(stages.stages) {}

  /// Whether the carry's old and new value may share memory. `place`: the carry's among the step's arguments and
  /// results.
  bool is_one(size_t place) const {
    const ValueId old = step_.args[place], next = step_.results[place];
    if (std::ranges::count(step_.results, next) != 1) return false;
    const auto made = std::ranges::find_if(stages_, [&](const Stage& stage) { return makes(stage, next); });
    if (made == stages_.end() || made->ops.size() != 1) return false;
    const Op& op = *made->ops[0];
    const int updated = ir::traits_of(op.code).updated;
    if (updated < 0) return false;
    for (size_t i = 0; i < op.operands.size(); ++i)
      if (static_cast<int>(i) == updated ? op.operands[i] != old : lies_in(op.operands[i], old)) return false;
    return std::none_of(made + 1, stages_.end(), [&](const Stage& stage) { return reads(stage, old); });
  }

 private:
  static bool makes(const Stage& stage, ValueId value) {
    return std::ranges::any_of(stage.ops, [&](const Op* op) { return std::ranges::count(op->results, value) > 0; });
  }

  /// Whether `value` is read from the memory of `memory`.
  bool lies_in(ValueId value, ValueId memory) const {
    const auto found = schedule_.buffer.find(viewed(schedule_, value));
    return found != schedule_.buffer.end() && found->second == schedule_.buffer.at(memory);
  }

  bool reads(const Stage& stage, ValueId memory) const {
    bool found = false;
    for (const Op* op : stage.ops)
      passes::for_each_use(*op, [&](ValueId value) { found = found || lies_in(value, memory); });
    return found;
  }

  const Schedule& schedule_;
  const ir::Block& step_;
  const std::vector<Stage>& stages_;
};

}  // namespace

std::vector<bool> carries_in_place(const Schedule& schedule, const Op& loop, const BlockSchedule& body) {
  const CarryMemory memory(schedule, loop.regions.back(), body);
  std::vector<bool> found;
  for (size_t i = 0; i < schedule.controls.at(&loop).carries.size(); ++i) found.push_back(memory.is_one(i));
  return found;
}

}  // namespace weft::planning
