#include "planning/fusion/fusion_groups.h"

#include <numeric>
#include <utility>

namespace weft::planning {

using ir::Op;
using ir::Shape;
using ir::ValueId;

FusionGroups::FusionGroups(const LoweringRules& rules, const ir::Block& block, bool batched, bool along_dependences)
    : rules_(rules), program_(rules.program()), block_(block) {
  const int64_t tiny = rules.target().limits().tiny_domain;
  std::map<Shape, uint32_t> known;
  ops_.reserve(block.ops.size());
  for (const Op& op : block.ops) {
    for (ValueId result : op.results) definition_[result] = static_cast<uint32_t>(ops_.size()) + 1;
    FusedOp& fused = ops_.emplace_back(rules.of(op), 0, 0);
    if (fused.lowering != Lowering::kFused) continue;
    const auto [found, fresh] = known.try_emplace(domain_of(rules, op, batched), static_cast<uint32_t>(known.size()));
    fused.domain = fused.group = found->second;
    if (!fresh) continue;
    const ir::Dim elements = element_count(found->first);
    domains_.push_back(found->first);
    tiny_.push_back(elements.is_constant() && elements.constant() <= tiny);
  }
  if (along_dependences) join_dependent();
}

uint32_t FusionGroups::leader(uint32_t op) {
  while (parent_[op] != op) op = parent_[op] = parent_[parent_[op]];
  return op;
}

/// Unites two groups. The earlier op of the two leaders stands for both.
void FusionGroups::unite(uint32_t a, uint32_t b) {
  a = leader(a);
  b = leader(b);
  parent_[std::max(a, b)] = std::min(a, b);
}

void FusionGroups::join_dependent() {
  parent_.resize(ops_.size());
  std::iota(parent_.begin(), parent_.end(), 0);
  // The first op that reads a value's elements over a domain. Later readers share its loads, or at least its cache
  // lines.
  std::map<std::pair<ValueId, uint32_t>, uint32_t> readers;
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].lowering != Lowering::kFused) continue;
    // An op on constants alone (a loop's zeros) only stores. All such ops over one domain are one group.
    bool is_fill = true;
    for (ValueId operand : block_.ops[i].operands) {
      const Read read = this->read(i, operand);
      is_fill = is_fill && is_constant(read.root);
      if (read.same_element)
        unite(i, static_cast<uint32_t>(read.producer));
      else if (!read.repeats && !is_constant(read.root) && !is_weights(block_.ops[i], operand))
        unite(i, readers.try_emplace({read.root, ops_[i].domain}, i).first->second);
    }
    if (is_fill) unite(i, readers.try_emplace({ir::kNoValue, ops_[i].domain}, i).first->second);
  }
  // All ops over a tiny domain are one group.
  for (uint32_t i = 0; i < ops_.size(); ++i)
    if (ops_[i].lowering == Lowering::kFused)
      ops_[i].group = tiny_[ops_[i].domain] ? ops_[i].domain : static_cast<uint32_t>(domains_.size()) + leader(i);
}

bool FusionGroups::is_weights(const Op& op, ValueId operand) const {
  return operand != op.operands[0] && rules_.tile(op).has_value();
}

bool FusionGroups::is_constant(ValueId root) const {
  const uint32_t made = definition_.get(root);
  return made != 0 && ir::is_constant(block_.ops[made - 1].code);
}

bool FusionGroups::is_view_or_alias(size_t op) const {
  return ops_[op].lowering == Lowering::kView || ops_[op].lowering == Lowering::kAlias;
}

ValueId FusionGroups::root(ValueId value) const {
  for (uint32_t made = definition_.get(value); made != 0; made = definition_.get(value)) {
    const Op& def = block_.ops[made - 1];
    if (def.operands.empty() || !is_view_or_alias(made - 1)) break;
    value = def.operands[0];
  }
  return value;
}

FusionGroups::Read FusionGroups::read(size_t op, ValueId operand) const {
  bool elsewhere = rules_.tile(block_.ops[op]).has_value();  // a product reads whole rows
  bool repeats = false;
  const Op* slice = nullptr;
  int64_t slices = 0;
  uint32_t made = definition_.get(operand);
  for (; made != 0; made = definition_.get(operand)) {
    const Op& def = block_.ops[made - 1];
    if (!is_view_or_alias(made - 1)) break;
    if (ir::is_range(def.code)) {
      slice = &def;
      ++slices;
    } else if (ir::is_repeated(def.code) || ir::is_alias(def.code)) {
      elsewhere = true;
      repeats = repeats || ir::is_repeated(def.code);
    } else {
      break;
    }
    operand = def.operands[0];
  }
  if (made == 0) return {operand, -1, false, repeats};
  const Op& producer = block_.ops[made - 1];
  const std::optional<ProductTile> tile = rules_.tile(producer);
  const bool gates = slices == 1 && tile && is_gate(*tile, producer, *slice);
  const bool same_element = !elsewhere && !is_reduction(producer) && !ir::is_join(producer.code) &&
                            (slices == 0 || gates) && ops_[made - 1].lowering == Lowering::kFused &&
                            ops_[made - 1].domain == ops_[op].domain && (slices > 0 || !tile || tile->groups == 1);
  return {operand, static_cast<int32_t>(made) - 1, same_element, repeats};
}

bool FusionGroups::is_gate(const ProductTile& tile, const Op& product, const Op& slice) const {
  const int64_t width = tile.width();
  const std::optional<ir::SliceRange> range = ir::constant_range(slice);
  return range && range->dim == program_.type(product.results[0]).rank() - 1 && range->limit - range->start == width &&
         range->start % width == 0;
}

}  // namespace weft::planning
