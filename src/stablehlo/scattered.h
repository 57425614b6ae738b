#pragma once

#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// Updates joined to the elements of a tensor whose places along a dim an index says, as aten::scatter_reduce and
/// index_reduce have it.
struct ScatterReduction {
  std::string_view op;  ///< of StableHLO: add, multiply, maximum, minimum
  bool is_mean = false;
  bool includes_self = true;  ///< what the tensor has at these places counts
};

/// table [V, rest...] with updates [idx..., rest...] joined to the rows of an index [idx...]. f16 and bf16 are summed
/// in f32.
Tensor join_rows(Emitter& emit, const Tensor& table, const Tensor& index, const Tensor& updates,
                 const ScatterReduction& how);

/// A tensor with `updates`, of the index's sizes, joined to its elements at the index along `dim` and at their own
/// places along the others. A tensor of rank 0 counts as one of one element.
Tensor join_elements(Emitter& emit, const Tensor& table, int64_t dim, const Tensor& index, const Tensor& updates,
                     const ScatterReduction& how);

}  // namespace weft::stablehlo
