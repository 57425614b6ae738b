#pragma once

#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// Distances [..., n, m] of the rows of a [..., n, k] to those of b [..., m, k], both of one batch: the sum of absolute
/// differences for p = 1, the root of the sum of squares for p = 2.
Tensor distances(Emitter& emit, const Tensor& a, const Tensor& b, int64_t p);
/// The cotangent of a. For two equal rows it is zero, as in PyTorch.
Tensor distances_by_first(Emitter& emit, const Tensor& cotangent, const Tensor& a, const Tensor& b, int64_t p,
                          const Tensor& found);

/// The distance of each row of a [n, k] from each later row, [n (n - 1) / 2], as in aten::pdist.
Tensor distances_within(Emitter& emit, const Tensor& a, int64_t p);

}  // namespace weft::stablehlo
