// Means over windows, as convolutions with ones: each channel of each sample is a sample of one channel.
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

/// How many elements each mean is of, as a tensor like the means.
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

}  // namespace

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
