// Overlapping windows in a recording: cut out of a sequence (F.unfold), and added up at their places (the derivative of
// Tensor.unfold, with which torch.istft adds its frames; F.fold; transposed convolutions). Here they are sums of blocks
// as long as the windows are apart, of shapes that hold for sequences of any length. They are recorded as these
// operations, and not decomposed later, so that the sizes between are among those that other runs bear out.

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <array>

#include "decompose/parts.h"
#include "record/recording.h"

namespace weft::decompose {
namespace {

/// The sum of windows [..., count, ..., size], of which window i begins at i * step in the dim that counts them. The
/// sum ends with the last whole block.
Tensor added_up(const Tensor& windows, int64_t dim, int64_t step) {
  const int64_t blocks = std::max<int64_t>((windows.size(-1) + step - 1) / step, 1);
  // [..., count, blocks, step], of the other dims in their order
  const Tensor in_blocks = of_length(windows, blocks * step).movedim(dim, -2).unflatten(-1, {blocks, step});
  Tensor sum;
  for (int64_t i = 0; i < blocks; ++i) {
    const Tensor part = at::constant_pad_nd(in_blocks.select(-2, i), {0, 0, i, blocks - 1 - i});
    sum = sum.defined() ? sum + part : part;
  }
  return sum.flatten(-2).movedim(-1, dim);
}

/// `count` elements of a dim from `begin` on; zeros where there are none.
Tensor cut(const Tensor& x, int64_t dim, int64_t begin, int64_t count) {
  if (begin == 0 && count == x.size(dim)) return x;
  const int64_t there = std::min(count, x.size(dim) - begin);
  const Tensor part = x.narrow(dim, begin, there);
  return there == count ? part : of_length(part.movedim(dim, -1), count).movedim(-1, dim);
}

const auto kAddedUp =
    aten<Tensor(const Tensor&, c10::SymIntArrayRef, int64_t, int64_t, int64_t)>("aten::unfold_backward", "");

/// Where PyTorch can run it, its own is one operation for all lengths.
Tensor unfold_backward(c10::DispatchKeySet keys, const Tensor& windows, c10::SymIntArrayRef input_sizes,
                       int64_t dimension, int64_t size, int64_t step) {
  if (!record::Recording::is_alone())
    return kAddedUp.redispatch(below(keys), windows, input_sizes, dimension, size, step);
  if (input_sizes.empty()) return windows.sum();
  const int64_t dim = at::maybe_wrap_dim(dimension, static_cast<int64_t>(input_sizes.size()));
  const int64_t length = input_sizes[static_cast<size_t>(dim)].guard_int(__FILE__, __LINE__);
  return cut(added_up(windows.narrow(-1, 0, size), dim, step), dim, 0, length);
}

// ---- F.unfold and F.fold

const auto kCol2im = aten<Tensor(const Tensor&, c10::SymIntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                                 at::IntArrayRef)>("aten::col2im", "");
const auto kIm2col =
    aten<Tensor(const Tensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef)>("aten::im2col", "");

/// Whether windows of two dims lie in a plain way: without gaps between their elements, and at least one of them.
bool are_plain(at::IntArrayRef kernel, at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride) {
  if (kernel.size() != 2 || dilation.size() != 2 || padding.size() != 2 || stride.size() != 2) return false;
  for (size_t i = 0; i < 2; ++i)
    if (kernel[i] < 1 || padding[i] < 0 || stride[i] < 1 || (dilation[i] != 1 && kernel[i] != 1)) return false;
  return true;
}

/// [N, C * kernel, places], or without N, as [N, C, height, width] of `output`.
Tensor col2im(c10::DispatchKeySet keys, const Tensor& x, c10::SymIntArrayRef output, at::IntArrayRef kernel,
              at::IntArrayRef dilation, at::IntArrayRef padding, at::IntArrayRef stride) {
  const auto sizes = c10::asIntArrayRefSlowOpt(output);
  bool is_usual = (x.dim() == 2 || x.dim() == 3) && sizes && sizes->size() == 2 && x.numel() > 0 &&
                  are_plain(kernel, dilation, padding, stride) && x.size(-2) % (kernel[0] * kernel[1]) == 0;
  std::array<int64_t, 2> places{};
  for (size_t i = 0; is_usual && i < 2; ++i) {
    places[i] = ((*sizes)[i] + 2 * padding[i] - kernel[i]) / stride[i] + 1;
    is_usual = (*sizes)[i] + 2 * padding[i] >= kernel[i];
  }
  if (!is_usual || x.size(-1) != places[0] * places[1])
    return kCol2im.redispatch(below(keys), x, output, kernel, dilation, padding, stride);
  const Tensor batch = x.dim() == 2 ? x.unsqueeze(0) : x;
  // [N, C, kernel height, kernel width, rows, columns]
  Tensor windows = batch.unflatten(-1, {places[0], places[1]});
  windows = windows.unflatten(1, {x.size(-2) / (kernel[0] * kernel[1]), kernel[0], kernel[1]});
  const Tensor rows = added_up(windows.movedim(3, -1), 4, stride[1]);  // [N, C, kernel height, rows, width]
  Tensor result = added_up(rows.movedim(2, -1), 2, stride[0]);         // [N, C, height, width]
  for (int64_t i = 0; i < 2; ++i) {
    const auto at = static_cast<size_t>(i);
    result = cut(result, 2 + i, padding[at], (*sizes)[at]);
  }
  return x.dim() == 2 ? result.squeeze(0) : result;
}

/// [N, C, height, width], or without N, as [N, C * kernel, places].
Tensor im2col(c10::DispatchKeySet keys, const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef dilation,
              at::IntArrayRef padding, at::IntArrayRef stride) {
  bool is_usual = (x.dim() == 3 || x.dim() == 4) && x.numel() > 0 && are_plain(kernel, dilation, padding, stride);
  for (int64_t i = 0; is_usual && i < 2; ++i) {
    const auto at = static_cast<size_t>(i);
    is_usual = x.size(i - 2) + 2 * padding[at] >= kernel[at];
  }
  if (!is_usual) return kIm2col.redispatch(below(keys), x, kernel, dilation, padding, stride);
  Tensor batch = x.dim() == 3 ? x.unsqueeze(0) : x;
  if (padding[0] > 0 || padding[1] > 0)
    batch = at::constant_pad_nd(batch, {padding[1], padding[1], padding[0], padding[0]});
  // [N, C, rows, columns, kernel height, kernel width]
  const Tensor windows = batch.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1]);
  const Tensor result = windows.permute({0, 1, 4, 5, 2, 3}).flatten(-2).flatten(1, 3);
  return x.dim() == 3 ? result.squeeze(0) : result;
}

// ---- transposed convolutions, where the program runs without PyTorch

const auto kConvolution =
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("aten::convolution", "")
        .typed<Tensor(const Tensor&, const Tensor&, const OptionalTensor&, c10::SymIntArrayRef, c10::SymIntArrayRef,
                      c10::SymIntArrayRef, bool, c10::SymIntArrayRef, c10::SymInt)>();

/// x [N, C, T] by weights [C, O / groups, K], as frames that overlap. Convolutions by the zeros between elements would
/// take `stride` times as many products.
Tensor transposed(const Tensor& x, const Tensor& weight, const OptionalTensor& bias, int64_t stride, int64_t padding,
                  int64_t output_padding, int64_t groups) {
  const int64_t taps = weight.size(2), each = weight.size(1), channels = weight.size(0) / groups;
  Tensor frames;  // [N, O, T, K]
  if (channels == 1) {
    const Tensor factors = weight.unsqueeze(0).unsqueeze(3);  // [1, C, O, 1, K]
    frames = (x.unsqueeze(2).unsqueeze(-1) * factors).flatten(1, 2);
  } else {
    const Tensor by_group = x.unflatten(1, {groups, channels}).transpose(2, 3);  // [N, G, T, C]
    const Tensor factors = weight.unflatten(0, {groups, channels}).flatten(-2);  // [G, C, O K]
    frames = at::matmul(by_group, factors).unflatten(-1, {each, taps}).transpose(2, 3).flatten(1, 2);
  }
  const Tensor sum = added_up(frames, 2, stride);
  const int64_t length = (x.size(2) - 1) * stride - 2 * padding + taps + output_padding;
  const Tensor result = cut(sum, 2, padding, length);
  return bias && bias->defined() ? result + bias->unsqueeze(-1) : result;
}

Tensor convolution(c10::DispatchKeySet keys, const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                   c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                   bool is_transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  const auto number = [](c10::SymIntArrayRef numbers) { return numbers[0].guard_int(__FILE__, __LINE__); };
  const bool is_one = is_transposed && record::Recording::is_alone() && x.dim() == 3 && weight.dim() == 3 &&
                      x.numel() > 0 && x.scalar_type() == weight.scalar_type() && stride.size() == 1 &&
                      number(stride) > 1 && number(dilation) == 1 && number(padding) >= 0 &&
                      number(padding) < weight.size(2) && weight.size(0) == x.size(1);
  if (!is_one)
    return kConvolution.redispatch(below(keys), x, weight, bias, stride, padding, dilation, is_transposed,
                                   output_padding, std::move(groups));
  return transposed(x, weight, bias, number(stride), number(padding), number(output_padding),
                    groups.guard_int(__FILE__, __LINE__));
}

// ---- padding by a dim's own elements, where the program runs without PyTorch

using Pad = Tensor(const Tensor&, c10::SymIntArrayRef);
/// By the number of dims.
const std::array kMirror{aten<Pad>("aten::reflection_pad1d", ""), aten<Pad>("aten::reflection_pad2d", ""),
                         aten<Pad>("aten::reflection_pad3d", "")};
const std::array kRepeat{aten<Pad>("aten::replication_pad1d", ""), aten<Pad>("aten::replication_pad2d", ""),
                         aten<Pad>("aten::replication_pad3d", "")};

/// The elements next to an end, in the order in which they stand beyond it: mirrored, or the last one again and again.
template <bool IsMirror>
Tensor beyond(const Tensor& x, int64_t dim, bool is_end, int64_t count) {
  const int64_t size = x.size(dim);
  if constexpr (IsMirror) return x.narrow(dim, is_end ? size - 1 - count : 1, count).flip({dim});
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(dim)] = count;
  return x.narrow(dim, is_end ? size - 1 : 0, 1).expand(sizes);
}

/// Of the last dims, one after the other, so that a dim without padding may have any size.
template <bool IsMirror, size_t Dims>
Tensor padded(c10::DispatchKeySet keys, const Tensor& x, c10::SymIntArrayRef padding) {
  const auto numbers = c10::asIntArrayRefSlowOpt(padding);
  bool is_usual = record::Recording::is_alone() && numbers && numbers->size() == 2 * Dims &&
                  x.dim() > static_cast<int64_t>(Dims) && x.numel() > 0;
  for (size_t i = 0; is_usual && i < 2 * Dims; ++i) {
    const int64_t size = x.size(-1 - static_cast<int64_t>(i / 2));
    is_usual = (*numbers)[i] >= 0 && (!IsMirror || (*numbers)[i] < size);
  }
  if (!is_usual) return (IsMirror ? kMirror : kRepeat)[Dims - 1].redispatch(below(keys), x, padding);
  Tensor result = x;
  for (size_t i = 0; i < Dims; ++i) {
    const int64_t dim = x.dim() - 1 - static_cast<int64_t>(i);
    std::vector<Tensor> parts;
    if ((*numbers)[2 * i] > 0) parts.push_back(beyond<IsMirror>(result, dim, false, (*numbers)[2 * i]));
    parts.push_back(result);
    if ((*numbers)[2 * i + 1] > 0) parts.push_back(beyond<IsMirror>(result, dim, true, (*numbers)[2 * i + 1]));
    if (parts.size() > 1) result = at::cat(parts, dim);
  }
  return result;
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("unfold_backward", unfold_backward);
  m.impl("col2im", col2im);
  m.impl("im2col", im2col);
  m.impl("convolution", convolution);
  m.impl("reflection_pad1d", padded<true, 1>);
  m.impl("reflection_pad2d", padded<true, 2>);
  m.impl("reflection_pad3d", padded<true, 3>);
  m.impl("replication_pad1d", padded<false, 1>);
  m.impl("replication_pad2d", padded<false, 2>);
  m.impl("replication_pad3d", padded<false, 3>);
}
