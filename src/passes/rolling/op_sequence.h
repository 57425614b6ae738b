#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "ir/program.h"

namespace weft::passes {

/// The ops of a block as the pass roll looks at them. The ops that compute form a sequence, in the order in which they
/// ran; an unrolled loop is a repetition in it. Ops that only move or make values (slices, casts, constants) are
/// *floating*: they have no place in the sequence, since each can be done wherever its readers are.
class OpSequence {
 public:
  OpSequence(ir::Program& program, std::vector<ir::Op> ops);

  /// For a value whose op was rolled into a scan: the value that replaces it. Set by RolledWriter.
  std::function<ir::ValueId(ir::ValueId)> element;

  size_t size() const { return row_.size(); }
  const ir::Op& op(size_t place) const { return ops_[row_[place]]; }
  /// The value that the op at `place` reads, as resolve() gives it.
  ir::ValueId read(size_t place, size_t index) const;
  size_t read_count(size_t place) const { return reads_[place].size(); }
  /// The place of the op that computes the value, or -1; and which of the op's results it is.
  int64_t place(ir::ValueId v) const { return v < places_.size() ? places_[v].place : -1; }
  size_t result(ir::ValueId v) const { return places_[v].result; }
  /// The floating op that computes the value; null if there is none.
  const ir::Op* floating(ir::ValueId v) const { return v < floating_.size() ? floating_[v] : nullptr; }
  /// The value, or its element if it was rolled.
  ir::ValueId resolve(ir::ValueId v) const { return is_rolled(v) ? element(v) : v; }
  /// The operand of a floating op, resolved; kNoValue if it has none.
  ir::ValueId source(const ir::Op& op) const { return op.operands.empty() ? ir::kNoValue : resolve(op.operands[0]); }
  /// The value at the start of a chain of floating ops that ends in `v`: the first that no floating op computes.
  ir::ValueId root(ir::ValueId v) const;

  bool is_rolled(ir::ValueId v) const { return place(v) >= 0 && rolled_[static_cast<size_t>(place(v))]; }
  void set_rolled(size_t begin, size_t end);
  /// A new floating op of one result; its value.
  ir::ValueId add_floating(ir::OpCode code, ir::ValueId operand, ir::Attrs attrs, ir::Type type);

  /// A token for each place: equal for ops of the same form and, if `strong`, of the same weights. A weight is a value
  /// that at least three ops of one form read as the same operand.
  std::vector<size_t> tokens(bool strong) const;
  /// Gives the ops back.
  std::vector<ir::Op> release() { return std::move(ops_); }

 private:
  struct Place {
    int32_t place = -1;
    uint32_t result = 0;
  };
  ir::ValueId weight(ir::ValueId v) const;

  ir::Program& program_;
  std::vector<ir::Op> ops_;
  std::vector<uint32_t> row_;                    ///< the ops that have a place
  std::vector<std::vector<ir::ValueId>> reads_;  ///< by place
  std::vector<size_t> forms_;                    ///< by place
  std::vector<bool> rolled_;                     ///< by place
  std::vector<Place> places_;                    ///< by value
  std::vector<const ir::Op*> floating_;          ///< by value
  std::deque<ir::Op> made_;
};

}  // namespace weft::passes
