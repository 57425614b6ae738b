// Means over windows are convolutions with ones: each channel of each sample becomes a sample with one channel.
#include "stablehlo/pooling.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "stablehlo/convolution.h"

namespace weft::stablehlo {
namespace {

int64_t product(const Sizes& sizes) { return std::reduce(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

/// [..., spatial...] as [samples, 1, spatial...].
Sizes as_samples(const Sizes& sizes, size_t spatial) {
  const auto first = sizes.end() - static_cast<std::ptrdiff_t>(spatial);
  Sizes all{product({sizes.begin(), first}), 1};
  all.insert(all.end(), first, sizes.end());
  return all;
}

ConvolutionOptions options_of(const AveragePooling& pooling) {
  return {pooling.stride, pooling.padding, Sizes(pooling.kernel.size(), 1), 1};
}

Tensor ones(Emitter& emit, DType dtype, const AveragePooling& pooling) {
  return emit.constant(1, {dtype, as_samples(pooling.kernel, pooling.kernel.size())});
}

/// How many elements each mean is taken over, as a tensor like the means.
Tensor divisors(Emitter& emit, const TensorType& x, const TensorType& means, const AveragePooling& pooling) {
  const bool is_padded = std::ranges::any_of(pooling.padding, [](int64_t each) { return each != 0; });
  if (pooling.divisor || pooling.counts_padding || !is_padded)
    return emit.constant(static_cast<double>(pooling.divisor.value_or(product(pooling.kernel))), means);
  Sizes sizes = x.sizes;
  sizes[0] = 1;
  const Tensor counts =
      convolve(emit, emit.constant(1, {x.dtype, sizes}), ones(emit, x.dtype, pooling), options_of(pooling));
  const Tensor spatial = emit.reshape(counts, {counts.type.sizes.begin() + 2, counts.type.sizes.end()});
  Sizes dims(pooling.kernel.size());
  std::iota(dims.begin(), dims.end(), 2);
  return emit.broadcast(spatial, means.sizes, dims);
}

struct AdaptiveWindow {
  int64_t first, last;  ///< `last` is behind the window
  int64_t size() const { return last - first; }
};

std::vector<AdaptiveWindow> adaptive_windows(int64_t size, int64_t count) {
  std::vector<AdaptiveWindow> windows;
  for (int64_t i = 0; i < count; ++i) windows.push_back({i * size / count, ((i + 1) * size + count - 1) / count});
  return windows;
}

/// Pools the last dims one after the other: a window of several dims is the product of windows of one dim.
Tensor adaptive_pool(Emitter& emit, Tensor x, const Sizes& spatial, std::string_view op) {
  for (size_t i = 0; i < spatial.size(); ++i) {
    const int64_t dim = x.type.rank() - static_cast<int64_t>(spatial.size() - i);
    const TensorType scalar{x.type.dtype, {}};
    const Tensor init = op == "add" ? emit.constant(0, scalar) : emit.least(scalar);
    std::vector<Tensor> parts;
    for (const AdaptiveWindow& window : adaptive_windows(x.type.sizes[static_cast<size_t>(dim)], spatial[i])) {
      Tensor part = emit.reduce(op, emit.slice(x, dim, window.first, window.last), init, {dim});
      if (op == "add") part = emit.binary("divide", part, emit.like(static_cast<double>(window.size()), part));
      Sizes sizes = part.type.sizes;
      sizes.insert(sizes.begin() + dim, 1);
      parts.push_back(emit.reshape(part, sizes));
    }
    x = emit.concatenate(parts, dim);
  }
  return x;
}

}  // namespace

Tensor adaptive_average_pool(Emitter& emit, const Tensor& x, const Sizes& spatial) {
  return emit.convert(adaptive_pool(emit, emit.convert(x, compute_type(x.type.dtype)), spatial, "add"), x.type.dtype);
}

Tensor adaptive_max_pool(Emitter& emit, const Tensor& x, const Sizes& spatial) {
  return adaptive_pool(emit, x, spatial, "maximum");
}

Tensor adaptive_average_pool_by_input(Emitter& emit, const Tensor& dy, const TensorType& x, size_t spatial) {
  Tensor dx = emit.convert(dy, compute_type(x.dtype));
  for (int64_t dim = x.rank() - static_cast<int64_t>(spatial); dim < x.rank(); ++dim) {
    const int64_t size = x.sizes[static_cast<size_t>(dim)], count = dx.type.sizes[static_cast<size_t>(dim)];
    const std::vector<AdaptiveWindow> windows = adaptive_windows(size, count);
    std::optional<Tensor> sum;
    for (int64_t i = 0; i < count; ++i) {
      const AdaptiveWindow& window = windows[static_cast<size_t>(i)];
      const Tensor part = emit.slice(dx, dim, i, i + 1);
      const Tensor share = emit.binary("divide", part, emit.like(static_cast<double>(window.size()), part));
      const std::vector<Tensor> copies(static_cast<size_t>(window.size()), share);
      const Tensor placed = emit.pad(emit.concatenate(copies, dim), dim, window.first, size - window.last);
      sum = sum ? emit.binary("add", *sum, placed) : placed;
    }
    dx = *sum;
  }
  return emit.convert(dx, x.dtype);
}

Sizes AveragePooling::result_of(const Sizes& x) const {
  Sizes sizes = x;
  const size_t first = x.size() - kernel.size();
  for (size_t i = 0; i < kernel.size(); ++i)
    sizes[first + i] = (x[first + i] + 2 * padding[i] - kernel[i]) / stride[i] + 1;
  return sizes;
}

Tensor average_pool(Emitter& emit, const Tensor& x, const AveragePooling& pooling) {
  const DType dtype = compute_type(x.type.dtype);
  const Tensor samples = emit.reshape(emit.convert(x, dtype), as_samples(x.type.sizes, pooling.kernel.size()));
  const Tensor sums = convolve(emit, samples, ones(emit, dtype, pooling), options_of(pooling));
  const Tensor means = emit.binary("divide", sums, divisors(emit, samples.type, sums.type, pooling));
  return emit.convert(emit.reshape(means, pooling.result_of(x.type.sizes)), x.type.dtype);
}

Tensor average_pool_by_input(Emitter& emit, const Tensor& dy, const TensorType& x, const AveragePooling& pooling) {
  const DType dtype = compute_type(x.dtype);
  const size_t spatial = pooling.kernel.size();
  const TensorType samples{dtype, as_samples(x.sizes, spatial)};
  const Tensor dmeans = emit.reshape(emit.convert(dy, dtype), as_samples(dy.type.sizes, spatial));
  const Tensor dsums = emit.binary("divide", dmeans, divisors(emit, samples, dmeans.type, pooling));
  const Tensor dx = convolution_by_input(emit, dsums, samples, ones(emit, dtype, pooling), options_of(pooling));
  return emit.convert(emit.reshape(dx, x.sizes), x.dtype);
}

}  // namespace weft::stablehlo
