#pragma once

#include <optional>

#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// Means over windows of the last dims, as aten::avg_pool2d and avg_pool3d have them; without ceil_mode.
struct AveragePooling {
  Sizes kernel, stride, padding;
  bool counts_padding = true;
  std::optional<int64_t> divisor;  ///< in the place of how many elements a window has

  /// The sizes of the result, [..., spatial...] as `x`.
  Sizes result_of(const Sizes& x) const;
};

/// x [..., spatial...]: the means. f16 and bf16 are summed in f32.
Tensor average_pool(Emitter& emit, const Tensor& x, const AveragePooling& pooling);
/// The cotangent of x, whose type it has.
Tensor average_pool_by_input(Emitter& emit, const Tensor& dy, const TensorType& x, const AveragePooling& pooling);

}  // namespace weft::stablehlo
