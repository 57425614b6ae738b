#pragma once

#include <vector>

#include "ir/builder.h"

namespace weft::streaming {

/// A window that moves along one dim.
struct Window {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;

  /// How far its last element is from its first.
  int64_t reach() const { return (kernel - 1) * dilation; }
};

/// Windows over the dims [.., spatial..., C] of a value, of which one may be time.
struct Windows {
  std::vector<Window> dims;  ///< by spatial dim
  size_t first = 1;          ///< the first spatial dim
  double fill = 0;           ///< what pads

  /// By element of a window, row-major: the value at it, for all windows. `counts`: how many windows there are along
  /// each spatial dim; `begins`: where the first one is.
  std::vector<ir::ValueId> taps(ir::Builder& builder, ir::ValueId value, const std::vector<int64_t>& begins,
                                const std::vector<int64_t>& counts) const;
};

/// With so many elements of `fill` on both sides of a dim.
ir::ValueId padded(ir::Builder& builder, ir::ValueId value, size_t dim, int64_t elements, double fill);

/// x [N, spatial..., C] by the weights [O, C/groups, kernel...] of a convolution, which `taps` has taken apart.
struct ConvolutionWeights {
  std::vector<ir::ValueId> by_group;  ///< [K*C/groups, O/groups]; of depthwise ones by tap: [O]
  ir::ValueId bias = ir::kNoValue;    ///< [O]
  bool is_depthwise = false;
};

/// The weights as products read them. `x_channels`: C.
ConvolutionWeights convolution_weights(ir::Builder& builder, ir::ValueId weight, ir::ValueId bias, int64_t groups,
                                       int64_t x_channels);
/// The weights [C, O/groups, kernel...] of a transposed convolution, as those of a convolution with the same sums.
ir::ValueId turned_weights(ir::Builder& builder, ir::ValueId weight, int64_t groups);
/// The convolution's result [N, spatial..., O].
ir::ValueId convolve(ir::Builder& builder, const std::vector<ir::ValueId>& taps, const ConvolutionWeights& weights);

}  // namespace weft::streaming
