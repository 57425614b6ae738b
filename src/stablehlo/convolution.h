#pragma once

#include "stablehlo/emitter.h"

namespace weft::stablehlo {

/// A convolution's options by spatial dim, as aten::convolution has them.
struct ConvolutionOptions {
  Sizes stride, padding, dilation;
  int64_t groups = 1;
};

/// x [N, C, spatial...] by w [O, C/groups, kernel...]: [N, O, spatial...]. f16 and bf16 accumulate in f32.
Tensor convolve(Emitter& emit, const Tensor& x, const Tensor& w, const ConvolutionOptions& options);

/// The cotangents of x and of w. The cotangent of x is also the transposed convolution of dy.
Tensor convolution_by_input(Emitter& emit, const Tensor& dy, const TensorType& x, const Tensor& w,
                            const ConvolutionOptions& options);
Tensor convolution_by_weight(Emitter& emit, const Tensor& dy, const Tensor& x, const TensorType& w,
                             const ConvolutionOptions& options);

}  // namespace weft::stablehlo
