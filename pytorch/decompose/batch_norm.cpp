// Batch normalisation without numbers made of sizes, so that the batch may be a symbol. PyTorch's decompositions divide
// by Python's numbers.

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/square.h>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

/// All dims but that of the channels.
Dims dims_beside_channels(const Tensor& x) {
  Dims dims{0};
  for (int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  return dims;
}

/// One number a channel in the shape that broadcasts over x.
Tensor by_channel(const Tensor& numbers, const Tensor& x) {
  Dims sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = x.size(1);
  return numbers.reshape(sizes);
}

bool is_given(const OptionalTensor& tensor) { return tensor && tensor->defined(); }

using FiveTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

/// _native_batch_norm_legit_functional: the result; the batch's mean and 1/sqrt(variance + eps); and the new running
/// statistics, with the unbiased variance.
FiveTensors batch_norm(const Tensor& given, const OptionalTensor& weight, const OptionalTensor& bias,
                       const Tensor& running_mean, const Tensor& running_variance, bool training, double momentum,
                       double eps) {
  if (!training) refuse("_native_batch_norm_legit_functional outside training");
  const Tensor x = wide(given);
  const Dims dims = dims_beside_channels(x);
  const Tensor mean = x.mean(dims), centred = x - by_channel(mean, x);
  const Tensor squares = at::square(centred);
  const Tensor rstd = at::rsqrt(squares.mean(dims) + eps);
  const Tensor count = at::ones_like(x).sum(dims);
  const Tensor unbiased = squares.sum(dims) / (count - 1);
  Tensor y = centred * by_channel(rstd, x);
  if (is_given(weight)) y = y * by_channel(*weight, x);
  if (is_given(bias)) y = y + by_channel(*bias, x);
  auto after = [&](const Tensor& before, const Tensor& now) {
    return (now * momentum + before * (1 - momentum)).to(before.scalar_type());
  };
  return {y.to(given.scalar_type()), mean, rstd, after(running_mean, mean), after(running_variance, unbiased)};
}

using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

ThreeTensors batch_norm_backward(const Tensor& grad, const Tensor& given, const OptionalTensor& weight,
                                 const OptionalTensor& running_mean, const OptionalTensor& running_variance,
                                 const OptionalTensor& saved_mean, const OptionalTensor& saved_rstd, bool training,
                                 double eps, std::array<bool, 3> wanted) {
  const Tensor x = wide(given), dy = wide(grad);
  const Dims dims = dims_beside_channels(x);
  const Tensor mean = wide(training ? *saved_mean : *running_mean);
  const Tensor rstd = training ? wide(*saved_rstd) : at::rsqrt(wide(*running_variance) + eps);
  const Tensor centred = x - by_channel(mean, x);
  const Tensor products = dy * centred;
  Tensor scale = is_given(weight) ? rstd * wide(*weight) : rstd;
  Tensor dx;
  if (wanted[0]) {
    dx = dy;
    if (training) {
      const Tensor slope = products.mean(dims) * at::square(rstd);
      dx = dx - by_channel(dy.mean(dims), x) - centred * by_channel(slope, x);
    }
    dx = (dx * by_channel(scale, x)).to(given.scalar_type());
  }
  auto like_weight = [&](const Tensor& sum) {
    return is_given(weight) ? sum.to(weight->scalar_type()) : sum.to(given.scalar_type());
  };
  return {dx, wanted[1] ? like_weight(products.sum(dims) * rstd) : Tensor(),
          wanted[2] ? like_weight(dy.sum(dims)) : Tensor()};
}

}  // namespace

void add_batch_norm(Table& table) {
  table.add("_native_batch_norm_legit_functional", "", batch_norm);
  table.add("native_batch_norm_backward", "", batch_norm_backward);
}

}  // namespace weft::decompose
