#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "passes/rewrite.h"

namespace weft::passes {

/// The rewrite rules of canonicalise for single ops, and the definitions of values that they look up.
class Simplifier {
 public:
  explicit Simplifier(ir::Program& program) : program_(program) { find_inner_pad_sums(program.body); }

  /// From now on ops go to this block. Returns the block where they went before.
  ir::Block* enter(ir::Block* block);

  /// Simplifies an op that is not in the block yet (its result exists). Returns a simpler value if a rule applies; else
  /// appends the op and returns its result.
  ir::ValueId add(ir::Op op);
  /// The same for an op with a new result. `declared`: the result's type, for ops whose type must be declared.
  ir::ValueId make(ir::OpCode code, std::vector<ir::ValueId> operands, ir::Attrs attrs = {},
                   const ir::Type* declared = nullptr);
  /// Appends an op (a scan) as it is.
  void append(ir::Op op);

  ir::ValueId slice(ir::ValueId value, int64_t dim, const ir::Dim& start, const ir::Dim& limit);
  ir::ValueId constant(double value, const ir::Type& type);

  const ir::Type& type(ir::ValueId value) const { return program_.type(value); }
  /// The op that computes the value; null for an argument. Valid until the next op is made.
  const ir::Op* definition(ir::ValueId value) const;
  /// Between these two calls ops belong to the region of a ragged scan. definition() then hides ops outside the region
  /// that work on its rows: they work on all rows, and the region's ops on the rows of a step.
  void enter_ragged(const ir::Ragged& ragged) { ragged_.push_back({ragged, {}}); }
  void leave_ragged() { ragged_.pop_back(); }
  /// The op that computes the value, if it is of this code; else null.
  const ir::Op* definition(ir::ValueId value, ir::OpCode code) const;
  /// The number that all elements of the value are, if it is known.
  std::optional<double> splat(ir::ValueId value) const;
  /// The value whose `not` this value is; kNoValue if it is none.
  ir::ValueId negation_of(ir::ValueId value) const;

  bool changed = false;  ///< true iff a rule has applied

 private:
  /// kNoValue when no rule applies; may change the op.
  ir::ValueId simplify(ir::Op& op);
  ir::ValueId simplify_unary(const ir::Op& op);
  ir::ValueId simplify_binary(const ir::Op& op);
  ir::ValueId simplify_logic(const ir::Op& op);
  ir::ValueId fold(const ir::Op& op);
  ir::ValueId behind_broadcast(const ir::Op& op);
  /// A summand that is zero outside of start..limit-1 along a dim.
  struct Piece {
    int64_t start, limit;
    ir::ValueId value;
  };
  void find_inner_pad_sums(const ir::Block& body);
  ir::ValueId sum_of_pads(const ir::Op& op);
  std::vector<Piece> pieces_of(const ir::Op& sum, int64_t dim) const;
  ir::ValueId pad_of_pieces(const ir::Op& op, int64_t dim, const std::vector<Piece>& pieces);
  /// The dim along which a pad, or a sum of pads in `pad_sums_`, is padded. None if a pad's bounds or its size are not
  /// numbers.
  std::optional<int64_t> padded_dim(ir::ValueId value) const;
  ir::ValueId broadcast(const ir::Op& op);
  ir::ValueId reshape(const ir::Op& op);
  ir::ValueId transpose(const ir::Op& op);
  ir::ValueId slice_of(const ir::Op& op);
  ir::ValueId slice_of_concat(const ir::Op& op, const ir::Op& concat);
  ir::ValueId slice_of_broadcast(const ir::Op& op, const ir::Op& broadcast);
  ir::ValueId slice_of_pad(const ir::Op& op, const ir::Op& pad);
  ir::ValueId pad(const ir::Op& op);
  ir::ValueId concat(ir::Op& op);
  ir::ValueId concat_of_sums(const ir::Op& op);
  ir::ValueId concat_of_casts(const std::vector<ir::ValueId>& parts, int64_t dim);
  ir::ValueId reverse(const ir::Op& op);
  ir::ValueId reduce(const ir::Op& op);
  ir::ValueId reduce_of_broadcast(const ir::Op& op, const ir::Op& broadcast);
  bool transpose_operands(ir::Op& op);

  struct Place {
    ir::Block* block = nullptr;
    size_t index = 0;
  };
  struct RaggedRegion {
    ir::Ragged ragged;
    std::set<const ir::Block*> blocks;  ///< the blocks entered since
  };
  bool is_hidden(const Place& place) const;
  ir::Program& program_;
  ir::Block* block_ = nullptr;
  std::vector<Place> places_;                          ///< where each value is computed
  std::vector<RaggedRegion> ragged_;                   ///< the ragged regions around the current block
  std::unordered_map<ir::ValueId, int64_t> pad_sums_;  ///< by sum of pads: its dim
  /// Additions whose only reader adds another pad to them, as the gradients of slices are added up. Only the last
  /// addition of such a sum is simplified, as a whole: otherwise each part would be copied once for each that follows.
  ValueSet inner_pad_sums_;
};

}  // namespace weft::passes
