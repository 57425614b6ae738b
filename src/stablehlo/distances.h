#pragma once

#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// Distances [..., n, m] of the rows of a [..., n, k] to those of b [..., m, k], both of one batch: the sum of absolute
/// differences for p = 1, the root of the sum of squares for p = 2.
Tensor distances(Emitter& emit, const Tensor& a, const Tensor& b, int64_t p);
/// The cotangent of a. Where two rows are equal it is zero, as PyTorch has it.
Tensor distances_by_first(Emitter& emit, const Tensor& cotangent, const Tensor& a, const Tensor& b, int64_t p,
                          const Tensor& found);

/// The distances of each row of a [n, k] from those behind it, [n (n - 1) / 2], as aten::pdist has them.
Tensor distances_within(Emitter& emit, const Tensor& a, int64_t p);

}  // namespace weft::stablehlo
