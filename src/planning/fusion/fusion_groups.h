#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "planning/lowering.h"

namespace weft::planning {

/// The ops of one block, for fusion: each op's domain, and the values that it reads through views.
class FusionGroups {
 public:
  /// `along_dependences`: a group has only ops that depend on each other or read the same values. Otherwise all ops
  /// over one domain are a group.
  FusionGroups(const LoweringRules& rules, const ir::Block& block, bool batched, bool along_dependences);

  struct Read {
    ir::ValueId root;   ///< what is read, behind views
    int32_t producer;   ///< the op of the block that makes it, or -1
    bool same_element;  ///< the producer has the same domain, and each element is read where it was just computed
    bool repeats;       ///< a broadcast, through which each element is read more than once
  };
  Read read(size_t op, ir::ValueId operand) const;

  Lowering lowering(size_t op) const { return ops_[op].lowering; }
  /// The number of a fused op's domain.
  uint32_t domain(size_t op) const { return ops_[op].domain; }
  /// The number of a fused op's group. Ops of different groups are in different stages.
  uint32_t group(size_t op) const { return ops_[op].group; }
  bool is_constant(ir::ValueId root) const;
  /// The value behind views and reshapes.
  ir::ValueId root(ir::ValueId value) const;

 private:
  struct FusedOp {
    Lowering lowering;
    uint32_t domain, group;
  };
  /// Whether the op has no code and no memory of its own.
  bool is_view_or_alias(size_t op) const;
  /// Whether the slice is one of the gates that the product's tile has side by side.
  bool is_gate(const ProductTile& tile, const ir::Op& product, const ir::Op& slice) const;
  bool is_weights(const ir::Op& op, ir::ValueId operand) const;
  void join_dependent();
  uint32_t leader(uint32_t op);
  void unite(uint32_t a, uint32_t b);

  const LoweringRules& rules_;
  const ir::Program& program_;
  const ir::Block& block_;
  std::vector<FusedOp> ops_;
  std::vector<ir::Shape> domains_;
  /// By domain: whether it is so small that starting a stage of its own costs more than the work in it.
  std::vector<bool> tiny_;
  std::vector<uint32_t> parent_;           ///< by op: another op of its group, or itself: the leader
  passes::ValueMap<uint32_t> definition_;  ///< by value: its op plus one, or 0
};

}  // namespace weft::planning
