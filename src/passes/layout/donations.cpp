#include "passes/layout/donations.h"

#include <algorithm>
#include <unordered_map>

#include "ir/builder.h"
#include "passes/layout/fuse.h"
#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Op;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

/// Finds, in the fused program, the results that may not be written where they are computed.
class WriteOrder {
 public:
  explicit WriteOrder(const Program& program) : program_(program), ops_(program.body.ops) {
    ValueMap<size_t> definition;  // plus one
    for (size_t i = 0; i < ops_.size(); ++i)
      for (ValueId result : ops_[i].results) definition[result] = i + 1;
    for (const ir::Donation& donation : program.donations) {
      if (is_kept(program, donation.result)) continue;
      const size_t made = definition.get(program.body.results[donation.result]);
      internal_check(made != 0 && ops_[made - 1].has("stage"), "result {} is stored by no stage", donation.result);
      const ValueId input = program.body.args[donation.input];
      seen_[input].push_back(writes_.size());
      writes_.push_back({donation.result, input, made - 1, stage(made - 1)});
    }
  }

  /// The positions of these results.
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
    int64_t stage;
    bool is_read = false;  ///< by an op of its own stage
    bool too_early = false;
  };

  int64_t stage(size_t op) const { return ops_[op].attr<int64_t>("stage"); }

  void visit(size_t op) {
    const Lowering lowering = lowering_of(program_, ops_[op]);
    if (lowering == Lowering::kView || lowering == Lowering::kAlias) {
      // The reader of a view reads what the view shows.
      for (ValueId operand : ops_[op].operands)
        if (auto found = seen_.find(operand); found != seen_.end()) show(ops_[op].results[0], found->second);
      return;
    }
    for_each_use(ops_[op], [&](ValueId value) {
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
    const int64_t here = stage(op);
    if (here > write.stage) write.too_early = true;
    if (here != write.stage) return;
    const bool same_element =
        lowering == Lowering::kFused && ops_[op].code != OpCode::kMatmulPacked && value == write.input;
    const bool is_first = write.is_read || op <= write.op;
    if (!same_element || !is_first || !stores_elements(write.op)) write.too_early = true;
    write.is_read = true;
  }

  /// Whether the op stores each element of its result where its stage's loops have just come to.
  bool stores_elements(size_t op) const {
    if (lowering_of(program_, ops_[op]) != Lowering::kFused) return false;
    if (ops_[op].code == OpCode::kMatmulPacked) return ops_[op].attr<int64_t>("groups") == 1;
    return ir::traits_of(ops_[op].code).codegen == ir::Codegen::kPointwise;
  }

  const Program& program_;
  const std::vector<Op>& ops_;
  std::vector<Write> writes_;
  std::unordered_map<ValueId, std::vector<size_t>> seen_;  ///< the inputs of these writes that a value shows
};

}  // namespace

bool is_kept(const Program& program, size_t result) {
  const auto found = std::ranges::lower_bound(program.donations, result, {}, &ir::Donation::result);
  return found != program.donations.end() && found->result == result &&
         program.body.results[result] == program.body.args[found->input];
}

void order_donated_writes(Program& program) {
  if (program.donations.empty()) return;
  const std::vector<size_t> too_early = WriteOrder(program).too_early();
  int64_t stages = 0;
  for (const Op& op : program.body.ops) stages = std::max(stages, op.attr_or<int64_t>("stage", -1) + 1);
  ir::Builder builder(program, program.body);
  for (size_t result : too_early) {
    ValueId& value = program.body.results[result];
    value = builder.emit(OpCode::kCopy, {value}, {{"stage", stages++}});
  }
}

}  // namespace weft::passes
