#pragma once

#include <vector>

#include "ir/builder.h"

namespace weft::passes {

/// A window that moves along one dim.
struct Window {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;

  /// The distance from its first element to its last.
  int64_t reach() const { return (kernel - 1) * dilation; }
};

/// Windows over the dims [.., spatial..., C] of a value. One of the spatial dims may be time.
struct Windows {
  std::vector<Window> dims;  ///< by spatial dim
  size_t first = 1;          ///< the first spatial dim
  double fill = 0;           ///< what pads

  /// For each element of a window, in row-major order: the values at that element in all windows. `begins` and
  /// `counts`, by spatial dim: where the first window is, and the number of windows.
  std::vector<ir::ValueId> taps(ir::Builder& builder, ir::ValueId value, const std::vector<int64_t>& begins,
                                const std::vector<int64_t>& counts) const;
  /// Of windows over one dim: their elements as a last dim behind those of `value`.
  ir::ValueId in_rows(ir::Builder& builder, ir::ValueId value, int64_t begin, int64_t count) const;
};

/// `count` elements of a dim from `first` on; the value itself where these are all.
ir::ValueId cut(ir::Builder& builder, ir::ValueId value, size_t dim, int64_t first, int64_t count);

/// The value with `elements` times `fill` on both sides of a dim.
ir::ValueId padded(ir::Builder& builder, ir::ValueId value, size_t dim, int64_t elements, double fill);

/// The dim with times - 1 zeros after each element.
ir::ValueId spread_out(ir::Builder& builder, ir::ValueId value, size_t dim, int64_t times);

/// The orders of dims that make [N, spatial..., C] of [N, C, spatial...], and the other way round.
std::vector<int64_t> channels_last(size_t rank);
std::vector<int64_t> channels_second(size_t rank);

/// x [N, spatial..., C] by the weights [O, C/groups, kernel...] of a convolution, which `taps` has taken apart.
struct ConvolutionWeights {
  std::vector<ir::ValueId> by_group;  ///< [K*C/groups, O/groups]; for depthwise convolutions by tap: [O]
  ir::ValueId bias = ir::kNoValue;    ///< [O]
  bool is_depthwise = false;
};

/// The weights in the form that `convolve` multiplies by. `x_channels`: C.
ConvolutionWeights convolution_weights(ir::Builder& builder, ir::ValueId weight, ir::ValueId bias, int64_t groups,
                                       int64_t x_channels);
/// The weights [C, O/groups, kernel...] of a transposed convolution, as those of a convolution with the same sums.
ir::ValueId turned_weights(ir::Builder& builder, ir::ValueId weight, int64_t groups);
/// The convolution's result [N, spatial..., O].
ir::ValueId convolve(ir::Builder& builder, const std::vector<ir::ValueId>& taps, const ConvolutionWeights& weights);

}  // namespace weft::passes
