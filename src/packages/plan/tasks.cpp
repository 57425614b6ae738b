#include "packages/plan/tasks.h"

#include <algorithm>

#include "packages/plan/rings.h"
#include "packages/plan/written_rows.h"

namespace weft::packages {
namespace {

using ir::Elements;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

/// The least rows and columns of weights in a product that multiplies bytes: for less, rounding the left operand takes
/// longer than it saves. (A WaveNet of 16 channels, 16 columns, took 1.0 to 1.45 of float32's time.)
constexpr int64_t kLeastRows = 16, kLeastColumns = 32;
/// The most rows of weights: so many products of 127 * 127 add up to less than 32 bits hold.
constexpr int64_t kMostRows = int64_t{1} << 17;

/// Ops whose result is the operand's elements in another order, or fewer or more of them.
bool is_view(OpCode code) { return ir::elements_of(code) != Elements::kComputed; }

/// Ops whose result consists of parts: operands, or zeros, each in a place of its own.
bool is_parts(OpCode code) {
  const ir::OpTraits& traits = ir::traits_of(code);
  return traits.lowering == ir::Lowering::kRowCopy || traits.updated >= 0 || written_rows(code) != WrittenRows::kNone;
}

/// Whether computing the op twice costs more than storing and loading its result.
bool is_dear(const Bound& step, const Op& op) {
  if (is_product(step, op)) return true;
  const ir::OpTraits& traits = ir::traits_of(op.code);
  return traits.by_library || traits.is_slow || traits.instructions > 4;
}

class Divider {
 public:
  Divider(const Bound& step, int64_t steps) : step_(step), program_(step.program()) {
    for (size_t state = 0; steps > 1 && state < step.states(); ++state)
      if (const std::optional<Ring> ring = ring_of(step, state, steps)) rows_[program_.body.args[state]] = ring->made;
  }

  Tasks divide() {
    count_uses();
    find_ways();
    do group();
    while (give_memory_to_shared());
    set_in_place();
    return std::move(tasks_);
  }

 private:
  struct Reach {
    bool same_element = true;  // on every way to it
  };

  void count_uses() {
    for (const Op& op : program_.body.ops)
      for (ValueId operand : op.operands) users_[operand].push_back(&op);
    for (ValueId result : program_.body.results) is_result_.insert(result);
  }

  bool in_memory(ValueId value) const { return ways_.contains(value) || step_.argument(value).has_value(); }

  /// Gives memory to the value, or to the value that it is a view of.
  void require(ValueId value) {
    const Op* op = step_.op_of(value);
    if (step_.is_constant(value) || op == nullptr || ways_.contains(value)) return;
    if (is_view(op->code) && !is_result_.contains(value)) return require(op->operands[0]);
    ways_.emplace(value, Way::kElements);
  }

  static bool keeps_last(const Bound& step, const Op& op) {
    const auto before = sizes_of(step.program(), op.operands[0]), after = sizes_of(step.program(), op.results[0]);
    return !before.empty() && !after.empty() && before.back() == after.back();
  }

  void find_way(const Op& op) {
    const ValueId result = op.results[0];
    if (ir::info(op.code).op_class == ir::OpClass::kReduction) ways_[result] = Way::kReduction;
    if (is_product(step_, op)) {
      for (const Segment& segment : segments(step_, op)) require(segment.value);
    } else if (ir::info(op.code).op_class == ir::OpClass::kProduct) {
      ways_[result] = Way::kContraction;
      for (ValueId operand : op.operands) require(operand);
    }
    if (is_parts(op.code) && !is_read_in_segments(op)) ways_[result] = Way::kParts;
    const Elements elements = ir::elements_of(op.code);
    const bool moves_lanes =
        (elements == Elements::kReshaped && !keeps_last(step_, op)) || elements == Elements::kReversed ||
        (elements == Elements::kPermuted &&
         op.attr<std::vector<int64_t>>("perm").back() + 1 != static_cast<int64_t>(sizes_of(program_, result).size()));
    const ir::OpTraits& traits = ir::traits_of(op.code);
    if (moves_lanes) require(op.operands[0]);
    if (ir::info(op.code).op_class == ir::OpClass::kMovement)
      for (const int operand : {traits.table, traits.updated})
        if (operand >= 0) require(op.operands[static_cast<size_t>(operand)]);
  }

  /// Whether a concat's parts are read by products alone, each by itself.
  bool is_read_in_segments(const Op& op) const {
    if (is_result_.contains(op.results[0]) || !ir::is_join(op.code)) return false;
    if (op.attr<int64_t>("dim") + 1 != static_cast<int64_t>(sizes_of(program_, op.results[0]).size())) return false;
    const auto users = users_.find(op.results[0]);
    if (users == users_.end()) return false;
    return std::ranges::all_of(users->second, [&](const Op* user) {
      return is_product(step_, *user) && !multiplies_bytes(step_, *user) && user->operands[0] == op.results[0];
    });
  }

  void find_ways() {
    for (const Op& op : program_.body.ops) {
      if (step_.is_constant(op.results[0])) continue;
      if (ir::fails(program_, op) != ir::Fails::kNever) tasks_.may_fail = true;
      find_way(op);
    }
    for (ValueId result : program_.body.results) ways_.emplace(result, Way::kElements);
  }

  /// Collects what the computation of `value` reads from memory, and the values without memory on the way.
  void reach(ValueId value, bool same_element, std::map<ValueId, Reach>& memory, std::set<ValueId>& inner) const {
    const Op* op = step_.op_of(value);
    internal_check(op != nullptr, "an argument has no op");
    const bool same = same_element && ir::info(op->code).op_class == ir::OpClass::kElementwise;
    std::vector<ValueId> operands = op->operands;
    if (is_product(step_, *op)) {
      operands.clear();
      for (const Segment& segment : segments(step_, *op)) operands.push_back(segment.value);
    }
    for (ValueId operand : operands) {
      if (step_.is_constant(operand)) continue;
      if (in_memory(operand)) {
        Reach& found = memory[operand];
        found.same_element = found.same_element && same;
      } else {
        inner.insert(operand);
        reach(operand, same, memory, inner);
      }
    }
  }

  /// Puts each value with memory in the first nest after everything that it reads.
  void group() {
    tasks_.tasks.clear();
    tasks_.task_of.clear();
    inner_.clear();
    for (const Op& op : program_.body.ops)
      for (ValueId value : op.results)
        if (auto way = ways_.find(value); way != ways_.end()) place(value, way->second);
  }

  void place(ValueId value, Way way) {
    std::map<ValueId, Reach> memory;
    std::set<ValueId> inner;
    reach(value, true, memory, inner);
    size_t first = 0;
    for (const auto& [read, how] : memory)
      if (auto task = tasks_.task_of.find(read); task != tasks_.task_of.end()) {
        const bool joins = how.same_element && tasks_.tasks[task->second].way == Way::kElements;
        first = std::max(first, task->second + (joins ? 0 : 1));
      }
    for (const auto& [read, how] : memory)
      if (const auto rows = rows_.find(read); rows != rows_.end())
        for (ValueId row : rows->second) first = std::max(first, behind(row));
    const auto fits = [&](const Task& task) {
      return way == Way::kElements && task.way == way &&
             sizes_of(program_, task.values[0]) == sizes_of(program_, value);
    };
    size_t at = first;
    while (at < tasks_.tasks.size() && !fits(tasks_.tasks[at])) ++at;
    if (at == tasks_.tasks.size()) tasks_.tasks.push_back({way, {}, {}});
    tasks_.tasks[at].values.push_back(value);
    tasks_.task_of[value] = at;
    for (const auto& [read, how] : memory) tasks_.tasks[at].reads.insert(read);
    for (ValueId id : inner) inner_[id].insert(at);
  }

  /// The index of the first nest behind all nests from which the value is computed, as far as these nests are placed.
  size_t behind(ValueId value) const {
    const Op* op = step_.op_of(value);
    if (op == nullptr || step_.is_constant(value)) return 0;
    if (const auto task = tasks_.task_of.find(value); task != tasks_.task_of.end()) return task->second + 1;
    size_t first = 0;
    if (!ways_.contains(value))
      for (ValueId operand : op->operands) first = std::max(first, behind(operand));
    return first;
  }

  /// Whether the value must be stored instead of computed where it is read: several nests read it and it is dear, or it
  /// is a product and some nest that reads it can't contain products.
  bool wants_memory(ValueId value, const std::set<size_t>& tasks) const {
    const Op* op = step_.op_of(value);
    if (is_product(step_, *op) && std::ranges::any_of(tasks, [&](size_t task) {
          return tasks_.tasks[task].way != Way::kElements && tasks_.tasks[task].way != Way::kParts;
        }))
      return true;
    return tasks.size() > 1 && !is_view(op->code) && has_dear(value);
  }

  /// Whether computing the value from memory takes a dear op, or more than six ops.
  bool has_dear(ValueId value) const {
    std::map<ValueId, Reach> memory;
    std::set<ValueId> inner{value};
    reach(value, true, memory, inner);
    return inner.size() > 6 || std::ranges::any_of(inner, [&](ValueId id) { return is_dear(step_, *step_.op_of(id)); });
  }

  /// Gives memory to values that want it and have a reader that doesn't: the last values of their chains.
  bool give_memory_to_shared() {
    std::set<ValueId> wanting;
    for (const auto& [value, tasks] : inner_)
      if (wants_memory(value, tasks)) wanting.insert(value);
    std::vector<ValueId> given;
    for (ValueId value : wanting) {
      const auto& users = users_[value];
      const bool is_last =
          std::ranges::any_of(users, [&](const Op* user) { return !wanting.contains(user->results[0]); });
      if (is_last) given.push_back(value);
    }
    for (ValueId value : given) ways_.emplace(value, Way::kElements);
    return !given.empty();
  }

  void set_in_place() {
    tasks_.in_place.assign(step_.states(), Tasks::InPlace::kNo);
    if (tasks_.may_fail) return;
    for (size_t i = 0; i < step_.states(); ++i) tasks_.in_place[i] = in_place(i);
  }

  Tasks::InPlace in_place(size_t state) const {
    const ValueId old = program_.body.args[state], made = program_.body.results[state];
    const size_t task = tasks_.task_of.at(made);
    if (tasks_.tasks[task].way != Way::kElements) return Tasks::InPlace::kNo;
    for (size_t later = task + 1; later < tasks_.tasks.size(); ++later)
      if (tasks_.tasks[later].reads.contains(old)) return Tasks::InPlace::kNo;
    for (ValueId value : tasks_.tasks[task].values) {
      std::map<ValueId, Reach> memory;
      std::set<ValueId> inner;
      reach(value, true, memory, inner);
      if (auto found = memory.find(old); found != memory.end() && !found->second.same_element)
        return Tasks::InPlace::kIfOneBlock;
    }
    return Tasks::InPlace::kYes;
  }

  const Bound& step_;
  const ir::Program& program_;
  std::map<ValueId, std::vector<const Op*>> users_;
  std::set<ValueId> is_result_;
  std::map<ValueId, Way> ways_;
  std::map<ValueId, std::vector<ValueId>> rows_;  // by state that is a window: its new rows
  std::map<ValueId, std::set<size_t>> inner_;     // values without memory, with the nests that compute them
  Tasks tasks_;
};

}  // namespace

bool is_product(const Bound& step, const Op& op) {
  if (ir::weights_of(op) == ir::kNoValue || !step.is_constant(ir::weights_of(op)) || step.is_constant(op.operands[0]))
    return false;
  const DType dtype = step.program().type(op.results[0]).dtype;
  return dtype == DType::kF32 || dtype == DType::kF64;
}

bool multiplies_bytes(const Bound& step, const Op& product) {
  if (step.activations() != DType::kI8 || step.program().type(product.results[0]).dtype != DType::kF32) return false;
  const int64_t rows = sizes_of(step.program(), product.operands[0]).back();
  const int64_t columns = sizes_of(step.program(), product.results[0]).back();
  return rows >= kLeastRows && rows <= kMostRows && columns >= kLeastColumns;
}

std::vector<Segment> segments(const Bound& step, const Op& product) {
  const ir::Program& program = step.program();
  const ValueId left = product.operands[0];
  const Op* op = step.op_of(left);
  const std::vector<int64_t> sizes = sizes_of(program, left);
  const auto last = static_cast<int64_t>(sizes.size()) - 1;
  const bool parts = op != nullptr && ir::is_join(op->code) && op->attr<int64_t>("dim") == last;
  if (!parts || multiplies_bytes(step, product)) return {{left, 0, sizes.back()}};
  std::vector<Segment> all;
  int64_t first = 0;
  for (ValueId part : op->operands) {
    const int64_t size = sizes_of(program, part).back();
    all.push_back({part, first, size});
    first += size;
  }
  return all;
}

Tasks divide(const Bound& step, int64_t steps) { return Divider(step, steps).divide(); }

}  // namespace weft::packages
