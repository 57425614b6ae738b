#include "planning/fusion/donations.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "passes/rewrite.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::Program;
using ir::ValueId;

/// Compares each write of a result into an input's memory with the reads of the input.
class WriteOrder {
 public:
  WriteOrder(const LoweringRules& rules, const std::vector<Stage>& body)
      : rules_(rules), ops_(rules.program().body.ops) {
    passes::ValueMap<size_t> definition;  // index plus one
    for (size_t i = 0; i < ops_.size(); ++i)
      for (ValueId result : ops_[i].results) definition[result] = i + 1;
    stage_.assign(ops_.size(), kNone);
    for (size_t i = 0; i < body.size(); ++i)
      for (const Op* op : body[i].ops) stage_[static_cast<size_t>(op - ops_.data())] = i;
    const Program& program = rules.program();
    for (const ir::Donation& donation : program.donations) {
      if (is_kept(program, donation.result)) continue;
      const size_t made = definition.get(program.body.results[donation.result]);
      internal_check(made != 0 && stage_[made - 1] != kNone, "result {} is stored by no stage", donation.result);
      const ValueId input = program.body.args[donation.input];
      seen_[input].push_back(writes_.size());
      writes_.push_back({donation.result, input, made - 1});
    }
  }

  /// The positions of the results that are written too early.
  std::vector<size_t> too_early() {
    for (size_t i = 0; i < ops_.size(); ++i) visit(i);
    std::vector<size_t> found;
    for (const Write& write : writes_)
      if (write.too_early) found.push_back(write.result);
    return found;
  }

 private:
  struct Write {
    size_t result;
    ValueId input;
    size_t op;
    bool is_read = false;  ///< whether an op of its own stage reads it
    bool too_early = false;
  };

  static constexpr size_t kNone = ~size_t{0};

  void visit(size_t op) {
    const Lowering lowering = rules_.of(ops_[op]);
    if (lowering == Lowering::kView || lowering == Lowering::kAlias) {
      // A view shows whatever inputs its operand shows.
      for (ValueId operand : ops_[op].operands)
        if (auto found = seen_.find(operand); found != seen_.end()) show(ops_[op].results[0], found->second);
      return;
    }
    passes::for_each_use(ops_[op], [&](ValueId value) {
      if (auto found = seen_.find(value); found != seen_.end())
        for (size_t write : found->second) read(writes_[write], op, value, lowering);
    });
  }

  void show(ValueId view, std::vector<size_t> writes) {
    std::vector<size_t>& shown = seen_[view];
    for (size_t write : writes)
      if (std::ranges::find(shown, write) == shown.end()) shown.push_back(write);
  }

  void read(Write& write, size_t op, ValueId value, Lowering lowering) const {
    const size_t here = stage_[op], written = stage_[write.op];
    if (here > written) write.too_early = true;
    if (here != written || (op == write.op && replaces_part(write))) return;
    const bool same_element = lowering == Lowering::kFused && !rules_.tile(ops_[op]) && value == write.input;
    const bool is_first = write.is_read || op <= write.op;
    if (!same_element || !is_first || !stores_elements(write.op)) write.too_early = true;
    write.is_read = true;
  }

  /// Whether the op that makes the result replaces a part of the input in place, and reads the input for nothing else.
  bool replaces_part(const Write& write) const {
    const Op& op = ops_[write.op];
    const int updated = ir::traits_of(op.code).updated;
    if (updated < 0 || op.operands[static_cast<size_t>(updated)] != write.input) return false;
    return std::ranges::count_if(op.operands, [&](ValueId value) { return shows_input(value, write); }) == 1;
  }

  /// Whether the value shows the input of this write.
  bool shows_input(ValueId value, const Write& write) const {
    const auto found = seen_.find(value);
    return found != seen_.end() &&
           std::ranges::any_of(found->second, [&](size_t each) { return writes_[each].input == write.input; });
  }

  /// Whether the op stores each element of its result at the element that its stage's loops have reached.
  bool stores_elements(size_t op) const {
    if (rules_.of(ops_[op]) != Lowering::kFused) return false;
    if (const auto tile = rules_.tile(ops_[op])) return tile->groups == 1;
    return ir::info(ops_[op].code).op_class == ir::OpClass::kElementwise;
  }

  const LoweringRules& rules_;
  const std::vector<Op>& ops_;
  std::vector<size_t> stage_;  ///< by op: its stage; kNone for a view
  std::vector<Write> writes_;
  std::unordered_map<ValueId, std::vector<size_t>> seen_;  ///< by value: the writes whose input it shows
};

/// Whether two ops make the same checks before they write: if one finds no error, neither does the other.
bool same_check(const Program& program, const Op& a, const Op& b) {
  auto rows = [&](const Op& op, size_t operand) {
    return program.type(op.operands[operand]).shape[static_cast<size_t>(op.attr<int64_t>("dim"))];
  };
  return a.code == b.code && ir::traits_of(a.code).updated >= 0 && a.operands[2] == b.operands[2] &&
         rows(a, 0) == rows(b, 0) && rows(a, 1) == rows(b, 1);
}

/// The first op that makes a result in an input's memory and finds all its errors before it writes.
std::optional<size_t> gate_of(const Program& program) {
  const std::vector<Op>& ops = program.body.ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ir::fails(program, ops[i]) != ir::Fails::kBeforeWriting) continue;
    for (const ir::Donation& donation : program.donations)
      if (std::ranges::find(ops[i].results, program.body.results[donation.result]) != ops[i].results.end()) return i;
  }
  return std::nullopt;
}

LateWrites late_writes_behind(const Program& program, std::optional<size_t> gate) {
  const std::vector<Op>& ops = program.body.ops;
  LateWrites late{std::vector<bool>(ops.size(), false), gate, {}};
  passes::ValueSet awaited;  // whatever ops that may fail depend on
  for (size_t i = ops.size(); i-- > 0;) {
    const bool is_passed = gate && i > *gate && same_check(program, ops[i], ops[*gate]);
    const bool fails = may_fail(program, ops[i]) && !is_passed;
    if (!fails && std::ranges::none_of(ops[i].results, [&](ValueId v) { return awaited.contains(v); })) continue;
    passes::for_each_use(ops[i], [&](ValueId v) { awaited.insert(v); });
    if (fails && i != gate)
      for (ValueId result : ops[i].results) awaited.insert(result);
  }
  passes::ValueSet written;
  for (const ir::Donation& donation : program.donations) {
    const ValueId result = program.body.results[donation.result];
    if (is_kept(program, donation.result)) continue;
    if (awaited.contains(result))
      late.copied.push_back(donation.result);
    else
      written.insert(result);
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    bool is_late = std::ranges::any_of(ops[i].results, [&](ValueId v) { return written.contains(v); });
    passes::for_each_use(ops[i], [&](ValueId v) { is_late = is_late || written.contains(v); });
    late.deferred[i] = is_late;
    if (is_late)
      for (ValueId result : ops[i].results) written.insert(result);
  }
  return late;
}

}  // namespace

bool may_fail(const Program& program, const Op& op) { return ir::fails(program, op) != ir::Fails::kNever; }

LateWrites late_writes(const LoweringRules& rules) {
  const Program& program = rules.program();
  const std::optional<size_t> gate = gate_of(program);
  LateWrites late = late_writes_behind(program, gate);
  // If an op that may fail depends on the gate's result, the gate can't come after all such ops. Then its result is
  // computed aside.
  const bool waits = gate && !late.deferred[*gate];
  return waits ? late_writes_behind(program, std::nullopt) : late;
}

bool is_kept(const Program& program, size_t result) {
  const auto found = std::ranges::lower_bound(program.donations, result, {}, &ir::Donation::result);
  return found != program.donations.end() && found->result == result &&
         program.body.results[result] == program.body.args[found->input];
}

std::vector<size_t> written_too_early(const LoweringRules& rules, const std::vector<Stage>& body) {
  if (rules.program().donations.empty()) return {};
  return WriteOrder(rules, body).too_early();
}

}  // namespace weft::planning
