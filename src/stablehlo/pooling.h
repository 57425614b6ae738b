#pragma once

#include <optional>

#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// Means over windows of the last dims, as aten::avg_pool2d and avg_pool3d have them; without ceil_mode.
struct AveragePooling {
  Sizes kernel, stride, padding;
  bool counts_padding = true;
  std::optional<int64_t> divisor;  ///< replaces the number of a window's elements

  /// The sizes of the result, [..., spatial...] as `x`.
  Sizes result_of(const Sizes& x) const;
};

/// x [..., spatial...]: the means. f16 and bf16 are summed in f32.
Tensor average_pool(Emitter& emit, const Tensor& x, const AveragePooling& pooling);
/// The cotangent of `x`, of x's type.
Tensor average_pool_by_input(Emitter& emit, const Tensor& dy, const TensorType& x, const AveragePooling& pooling);

/// x [..., spatial...]: the means, or the greatest elements, of windows, as in aten::adaptive_avg_pool3d and
/// adaptive_max_pool2d. Along each dim, window i of m is from floor(i n / m) to ceil((i + 1) n / m). Windows may differ
/// in size and overlap. `spatial`: m by dim, none of them 0.
Tensor adaptive_average_pool(Emitter& emit, const Tensor& x, const Sizes& spatial);
Tensor adaptive_max_pool(Emitter& emit, const Tensor& x, const Sizes& spatial);
/// The cotangent of the means' `x`, of x's type.
Tensor adaptive_average_pool_by_input(Emitter& emit, const Tensor& dy, const TensorType& x, size_t spatial);

}  // namespace weft::stablehlo
