#pragma once

#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// How updates are combined with elements of a tensor, as in aten::scatter_reduce and index_reduce. An index names the
/// elements along a dim.
struct ScatterReduction {
  std::string_view op;  ///< of StableHLO: add, multiply, maximum, minimum
  bool is_mean = false;
  bool includes_self = true;  ///< the tensor's own element takes part
};

/// table [V, rest...] with updates [idx..., rest...] joined to the rows of an index [idx...]. f16 and bf16 are summed
/// in f32.
Tensor join_rows(Emitter& emit, const Tensor& table, const Tensor& index, const Tensor& updates,
                 const ScatterReduction& how);

/// A tensor with `updates` combined with its elements. An update goes to the index's place along `dim`, and to its own
/// place along the other dims. `updates` has the index's sizes. A tensor of rank 0 counts as one element.
Tensor join_elements(Emitter& emit, const Tensor& table, int64_t dim, const Tensor& index, const Tensor& updates,
                     const ScatterReduction& how);

}  // namespace weft::stablehlo
