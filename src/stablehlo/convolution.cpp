#include "stablehlo/convolution.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::stablehlo {
namespace {

/// stablehlo.convolution: where batch, features and spatial dims stand, and the window.
struct Window {
  std::string_view left, right, result;  ///< letters of the two dims before the spatial ones: "b, f"
  Sizes stride, low, high, left_dilation, right_dilation;
  int64_t feature_groups = 1, batch_groups = 1;
};

std::string dims_text(std::string_view letters, size_t spatial) {
  std::string text = "[" + std::string(letters);
  for (size_t i = 0; i < spatial; ++i) text += fmt::format(", {}", i);
  return text + "]";
}

Tensor append(Emitter& emit, Tensor left, Tensor right, const TensorType& type, const Window& window) {
  const DType compute = compute_type(type.dtype);
  left = emit.convert(left, compute);
  right = emit.convert(right, compute);
  const size_t spatial = window.stride.size();
  std::string pads;
  for (size_t i = 0; i < spatial; ++i)
    pads += fmt::format("{}[{}, {}]", i > 0 ? ", " : "", window.low[i], window.high[i]);
  const Tensor result{emit.new_name(), {compute, type.sizes}};
  emit.line(fmt::format(
      "{} = stablehlo.convolution({}, {}) dim_numbers = {}x{}->{}, window = {{stride = {}, pad = [{}], lhs_dilate = "
      "{}, rhs_dilate = {}}} {{batch_group_count = {} : i64, feature_group_count = {} : i64, precision_config = "
      "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]}} : ({}, {}) -> {}",
      result.name, left.name, right.name, dims_text(window.left, spatial), dims_text(window.right, spatial),
      dims_text(window.result, spatial), list_of(window.stride), pads, list_of(window.left_dilation),
      list_of(window.right_dilation), window.batch_groups, window.feature_groups, to_string(left.type),
      to_string(right.type), to_string(result.type)));
  return emit.convert(result, type.dtype);
}

Sizes spatial_of(const TensorType& type) { return {type.sizes.begin() + 2, type.sizes.end()}; }
Sizes ones(size_t count) { return Sizes(count, 1); }

/// The size of something whose elements stand apart: (n - 1) apart + 1.
int64_t extent(int64_t size, int64_t apart) { return (size - 1) * apart + 1; }

}  // namespace

Tensor convolve(Emitter& emit, const Tensor& x, const Tensor& w, const ConvolutionOptions& options) {
  const Sizes in = spatial_of(x.type), kernel = spatial_of(w.type);
  TensorType type{x.type.dtype, {x.type.sizes[0], w.type.sizes[0]}};
  for (size_t i = 0; i < in.size(); ++i)
    type.sizes.push_back((in[i] + 2 * options.padding[i] - extent(kernel[i], options.dilation[i])) / options.stride[i] +
                         1);
  return append(emit, x, w, type,
                {"b, f", "o, i", "b, f", options.stride, options.padding, options.padding, ones(in.size()),
                 options.dilation, options.groups});
}

namespace {

/// Kernels [O, C/groups, ...], O/groups of each group, with the groups side by side: [O/groups, C, ...].
Tensor groups_beside(Emitter& emit, const Tensor& w, int64_t groups) {
  if (groups == 1) return w;
  const Sizes& sizes = w.type.sizes;
  Sizes apart{groups, sizes[0] / groups, sizes[1]}, order{1, 0, 2}, beside{sizes[0] / groups, groups * sizes[1]};
  for (size_t i = 2; i < sizes.size(); ++i) {
    apart.push_back(sizes[i]);
    order.push_back(static_cast<int64_t>(i) + 1);
    beside.push_back(sizes[i]);
  }
  return emit.reshape(emit.transpose(emit.reshape(w, apart), order), beside);
}

}  // namespace

/// A convolution of the cotangents, spread apart by the stride, by the reversed kernel.
Tensor convolution_by_input(Emitter& emit, const Tensor& dy, const TensorType& x, const Tensor& w,
                            const ConvolutionOptions& options) {
  const Sizes in = spatial_of(x), out = spatial_of(dy.type), kernel = spatial_of(w.type);
  Tensor turned = groups_beside(emit, w, options.groups);
  Sizes low, high;
  for (size_t i = 0; i < in.size(); ++i) {
    turned = emit.reverse(turned, static_cast<int64_t>(i) + 2);
    const int64_t reach = extent(kernel[i], options.dilation[i]);
    low.push_back(reach - 1 - options.padding[i]);
    high.push_back(in[i] + reach - 1 - low.back() - extent(out[i], options.stride[i]));
  }
  return append(emit, dy, turned, x,
                {"b, f", "i, o", "b, f", ones(in.size()), low, high, options.stride, options.dilation, options.groups});
}

/// A convolution of x by the cotangents, summed over the batch. x's channels take the place of a batch, and the
/// result's spatial dims are those of the kernel. Groups of channels are then groups of that batch.
Tensor convolution_by_weight(Emitter& emit, const Tensor& dy, const Tensor& x, const TensorType& w,
                             const ConvolutionOptions& options) {
  const Sizes in = spatial_of(x.type), out = spatial_of(dy.type), kernel = spatial_of(w);
  Sizes high;
  for (size_t i = 0; i < in.size(); ++i)
    high.push_back(extent(kernel[i], options.dilation[i]) + extent(out[i], options.stride[i]) - 1 - in[i] -
                   options.padding[i]);
  return append(emit, x, dy, w,
                {"f, b", "i, o", "f, b", options.dilation, options.padding, high, ones(in.size()), options.stride, 1,
                 options.groups});
}

}  // namespace weft::stablehlo
