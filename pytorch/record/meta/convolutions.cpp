// Shapes of convolutions. Results have no gaps and their dims in order, as in PyTorch's own Meta function.

#include <ATen/ops/empty.h>

#include "record/meta/shapes.h"

namespace weft::record {

namespace {

using at::Tensor;

/// The number for one dim of space. The list has one number for all dims, or one for each dim.
int64_t of_dim(at::IntArrayRef numbers, size_t dim) { return numbers.size() == 1 ? numbers[0] : numbers[dim]; }

/// The arguments of aten::convolution that decide sizes.
struct Window {
  at::IntArrayRef stride, padding, dilation;
  bool is_transposed;
  at::IntArrayRef output_padding;
  int64_t groups;

  /// The result's size along dim `dim` of space. `size`: the input's size there; `taps`: the kernel's.
  int64_t size(size_t dim, int64_t size, int64_t taps) const {
    const int64_t step = of_dim(stride, dim), pad = of_dim(padding, dim), reach = of_dim(dilation, dim) * (taps - 1);
    if (is_transposed) return (size - 1) * step - 2 * pad + reach + of_dim(output_padding, dim) + 1;
    TORCH_CHECK(size + 2 * pad >= reach + 1, "Calculated padded input size per channel: (", size + 2 * pad,
                "). Kernel size: (", reach + 1, "). Kernel size can't be greater than actual input size");
    return (size + 2 * pad - reach - 1) / step + 1;
  }
};

void check_channels(const Tensor& x, const Tensor& weight, const Window& window) {
  TORCH_CHECK(x.dim() == weight.dim() && x.dim() > 2, "Expected ", weight.dim(),
              "D input to convolution for a weight of size ", weight.sizes(), ", but got input of size: ", x.sizes());
  const int64_t expected = window.is_transposed ? weight.size(0) : weight.size(1) * window.groups;
  TORCH_CHECK(expected == x.size(1), "Given ", window.is_transposed ? "transposed=1, " : "", "groups=", window.groups,
              ", weight of size ", weight.sizes(), ", expected input", x.sizes(), " to have ", expected,
              " channels, but got ", x.size(1), " channels instead");
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>&, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool is_transposed,
                   at::IntArrayRef output_padding, int64_t groups) {
  const Window window{stride, padding, dilation, is_transposed, output_padding, groups};
  check_channels(x, weight, window);
  std::vector<int64_t> sizes = {x.size(0), is_transposed ? groups * weight.size(1) : weight.size(0)};
  for (int64_t dim = 2; dim < x.dim(); ++dim) {
    sizes.push_back(window.size(static_cast<size_t>(dim - 2), x.size(dim), weight.size(dim)));
    TORCH_CHECK(sizes.back() > 0, "Given input size per channel: ", x.sizes().slice(2),
                ". Calculated output size per channel: ", at::IntArrayRef(sizes).slice(2),
                ". Output size is too small");
  }
  return contiguous(sizes, x.options());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& gradient, const Tensor& x, const Tensor& weight,
                                                        at::OptionalIntArrayRef bias_sizes, at::IntArrayRef,
                                                        at::IntArrayRef, at::IntArrayRef, bool, at::IntArrayRef,
                                                        int64_t, std::array<bool, 3> wanted) {
  // Channels come last in both gradients where they do in either tensor.
  auto format = x.suggest_memory_format();
  if (format == at::MemoryFormat::Contiguous) format = weight.suggest_memory_format();
  const auto of = [&](bool is_wanted, at::IntArrayRef sizes) {
    return is_wanted ? at::empty(sizes, gradient.options(), format) : Tensor();
  };
  const bool has_bias = wanted[2] && bias_sizes.has_value();
  return {of(wanted[0], x.sizes()), of(wanted[1], weight.sizes()),
          has_bias ? contiguous(*bias_sizes, gradient.options()) : Tensor()};
}

}  // namespace

void add_convolutions(KernelTable& table) {
  table.add("convolution", "", convolution);
  table.add("convolution_backward", "", convolution_backward);
}

}  // namespace weft::record
