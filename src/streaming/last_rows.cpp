#include "streaming/last_rows.h"

#include <map>

#include "passes/rewrite.h"

namespace weft::streaming {

using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

namespace {

class Places {
 public:
  void add(const Op& op) {
    for (ValueId result : op.results) makers_[result] = &op;
  }

  /// Whether the value is the number of the last of `size` rows.
  bool is_last(ValueId value, const Dim& size) const {
    const Op* op = maker(value);
    while (op != nullptr && ir::is_alias(op->code)) op = maker(op->operands[0]);
    if (op == nullptr || op->code != OpCode::kAdd) return false;
    return (is_size(op->operands[0], size) && is_minus_one(op->operands[1])) ||
           (is_size(op->operands[1], size) && is_minus_one(op->operands[0]));
  }

 private:
  const Op* maker(ValueId value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? nullptr : found->second;
  }
  bool is_size(ValueId value, const Dim& size) const {
    const Op* op = maker(value);
    return op != nullptr && op->code == OpCode::kSize && op->attr<Dim>("of") == size;
  }
  bool is_minus_one(ValueId value) const {
    const Op* op = maker(value);
    return op != nullptr && ir::is_constant(op->code) && op->has("value") && op->attr<double>("value") == -1;
  }

  std::map<ValueId, const Op*> makers_;  ///< ops stay where they are
};

}  // namespace

void last_rows(ir::Program& program) {
  Places places;
  for (Op& op : program.body.ops) {
    if (op.code == OpCode::kGather) {
      const Dim size = program.type(op.operands[0]).shape[0];
      ir::Type row = program.type(op.operands[0]);
      row.shape[0] = Dim(1);
      if (program.type(op.results[0]) == row && places.is_last(op.operands[1], size)) {
        Op slice{OpCode::kSlice,
                 {op.operands[0]},
                 op.results,
                 {{"dim", int64_t{0}}, {"start", size - Dim(1)}, {"limit", size}},
                 {}};
        passes::copy_note(op, {&slice, 1});
        op = std::move(slice);
      }
    }
    places.add(op);
  }
}

}  // namespace weft::streaming
