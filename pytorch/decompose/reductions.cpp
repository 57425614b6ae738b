#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

struct Moments {
  Dims dims;
  Tensor variance, mean;  ///< with all dims, in the dtype that PyTorch computes in
};

Tensor over_degrees(const Tensor& squares, at::IntArrayRef dims, double correction) {
  Tensor sum = squares.sum(dims, true);
  if (std::ranges::find(dims, 0) != dims.end()) {  // the leading dim may be a symbol
    Tensor count = at::ones_like(squares).sum(dims, true);
    return sum / (count - correction).clamp_min(0);
  }
  double count = 1;
  for (int64_t dim : dims) count *= static_cast<double>(squares.size(dim));
  return sum / std::max(count - correction, 0.0);
}

Moments moments(const Tensor& given, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction) {
  Tensor x = wide(given);
  Dims dims = dims_of(x, dim);
  Tensor mean = x.mean(dims, true);
  Tensor squares = at::square(x - mean);
  double lost = correction.value_or(1).toDouble();
  Tensor variance = lost == 0 ? squares.mean(dims, true) : over_degrees(squares, dims, lost);
  return {dims, variance, mean};
}

Tensor var(const Tensor& x, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction, bool keepdim) {
  Moments of = moments(x, dim, correction);
  return reduced(of.variance, of.dims, keepdim, x.scalar_type());
}

Tensor deviation(const Tensor& x, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
                 bool keepdim) {
  Moments of = moments(x, dim, correction);
  return reduced(root(of.variance), of.dims, keepdim, x.scalar_type());
}

std::tuple<Tensor, Tensor> var_mean(const Tensor& x, at::OptionalIntArrayRef dim,
                                    const std::optional<at::Scalar>& correction, bool keepdim) {
  Moments of = moments(x, dim, correction);
  return {reduced(of.variance, of.dims, keepdim, x.scalar_type()), reduced(of.mean, of.dims, keepdim, x.scalar_type())};
}

std::tuple<Tensor, Tensor> std_mean(const Tensor& x, at::OptionalIntArrayRef dim,
                                    const std::optional<at::Scalar>& correction, bool keepdim) {
  Moments of = moments(x, dim, correction);
  return {reduced(root(of.variance), of.dims, keepdim, x.scalar_type()),
          reduced(of.mean, of.dims, keepdim, x.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight,
                                              const OptionalTensor& bias, double eps) {
  Dims dims;
  for (auto dim = x.dim() - static_cast<int64_t>(shape.size()); dim < x.dim(); ++dim) dims.push_back(dim);
  Tensor mean = x.mean(dims, true);
  Tensor centred = x - mean;
  Tensor rstd = at::rsqrt((centred * centred).mean(dims, true) + eps);
  Tensor y = centred * rstd;
  if (weight) y = y * *weight;
  if (bias) y = y + *bias;
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                              int64_t n, int64_t c, int64_t hxw, int64_t groups, double eps) {
  Tensor rows = wide(x).reshape({n, groups, c / groups * hxw});
  Tensor mean = rows.mean(2, true);
  Tensor centred = rows - mean;
  Tensor rstd = at::rsqrt(at::square(centred).mean(2, true) + eps);
  Tensor y = (centred * rstd).reshape(x.sizes());
  Dims sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = c;
  if (weight) y = y * weight->reshape(sizes);
  if (bias) y = y + bias->reshape(sizes);
  auto dtype = x.scalar_type();
  return {y.to(dtype), mean.squeeze(2).to(dtype), rstd.squeeze(2).to(dtype)};
}

/// The derivative by an element of 0 is 0, though the derivative of the power there may be infinite.
Tensor power_norm(const Tensor& x, at::IntArrayRef dims, const at::Scalar& ord) {
  Tensor size = x.abs(), terms;
  double order = ord.toDouble();
  if (order < 1) {
    Tensor nothing = size.eq(0);
    terms = select(nothing, order > 0 ? 0.0 : kInfinity, select(nothing, 1.0, size).pow(ord));
  } else {
    terms = size.pow(ord);
  }
  Tensor powers = terms.sum(dims, true);
  Tensor zero = powers.eq(order < 0 ? kInfinity : 0.0);
  return select(zero, 0.0, select(zero, 1.0, powers).pow(1 / order));
}

/// The largest or smallest of the absolute values. Where it is NaN there is no gradient.
Tensor extreme_norm(const Tensor& x, at::IntArrayRef dims, bool smallest) {
  auto norm = [&](const Tensor& of) { return smallest ? of.abs().amin(dims, true) : of.abs().amax(dims, true); };
  Tensor known = norm(x.detach());
  return norm(gated(known.eq(known), x));
}

Tensor vector_norm(const Tensor& given, const at::Scalar& ord, at::OptionalIntArrayRef dim, bool keepdim,
                   std::optional<at::ScalarType> dtype) {
  auto result = dtype.value_or(given.scalar_type());
  Tensor x = wide(given.to(result)), norm;
  Dims dims = dims_of(x, dim);
  double order = ord.toDouble();
  if (order == 2) {
    norm = root(at::square(x).sum(dims, true));
  } else if (order == 1) {
    norm = x.abs().sum(dims, true);
  } else if (order == 0) {
    norm = x.ne(0).to(x.scalar_type()).sum(dims, true);
  } else if (std::isinf(order)) {
    norm = extreme_norm(x, dims, /*smallest=*/order < 0);
  } else {
    norm = power_norm(x, dims, ord);
  }
  return reduced(norm, dims, keepdim, result);
}

/// Slices along `dim`, scaled down to a norm of `largest` where theirs is larger. The factor has no gradient elsewhere,
/// where the norm may be NaN.
Tensor renorm(const Tensor& x, const at::Scalar& ord, int64_t dim, const at::Scalar& largest) {
  Dims dims = dims_of(x, std::nullopt);
  dims.erase(dims.begin() + at::maybe_wrap_dim(dim, x.dim()));
  Tensor size = wide(x);
  auto norm = [&](const Tensor& of) { return at::linalg_vector_norm(of, ord, dims, true); };
  Tensor is_larger = norm(size.detach()).gt(largest);
  Tensor factor = (norm(gated(is_larger, size)) + 1e-7).reciprocal() * largest;
  return x * select(is_larger, factor, 1.0).to(x.scalar_type());
}

Tensor logsumexp(const Tensor& given, at::IntArrayRef dim, bool keepdim) {
  Tensor x = floating(given);
  Dims dims = dims_of(x, dim);
  Tensor largest = wide(x).amax(dims, true).detach();
  largest = select(largest.abs().eq(kInfinity), 0.0, largest);
  Tensor result = at::log((wide(x) - largest).exp().sum(dims, true)) + largest;
  return reduced(result, dims, keepdim, x.scalar_type());
}

/// Values and indices. The gradient goes only to the element at the index.
template <bool smallest>
std::tuple<Tensor, Tensor> extremum(const Tensor& x, int64_t dim, bool keepdim) {
  Tensor index = smallest ? at::argmin(x, dim, true) : at::argmax(x, dim, true);
  if (x.dim() == 0) return {x.clone(), index};
  Tensor values;
  if (x.is_floating_point()) {
    values = select(positions(x, dim).eq(index), x, 0.0).sum(dim, true);
  } else {
    values = smallest ? x.amin(dim, true) : x.amax(dim, true);
  }
  if (keepdim) return {values, index};
  return {values.squeeze(dim), index.squeeze(dim)};
}

std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  Dims dims = dim ? dims_of(x, at::IntArrayRef(*dim)) : dims_of(x, std::nullopt);
  return {x.amin(dims, keepdim), x.amax(dims, keepdim)};
}

/// Multiplies halves, so that the derivative has no division by an element, which may be 0.
Tensor prod(const Tensor& given, int64_t dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  Tensor x = summable(given, dtype);
  auto result = x.scalar_type();
  x = wide(x);
  if (x.dim() == 0) return x.to(result);
  for (int64_t size = x.size(dim); size > 1; size = x.size(dim)) {
    int64_t half = size / 2;
    Tensor pairs = x.narrow(dim, 0, half) * x.narrow(dim, half, half);
    x = size % 2 == 1 ? at::cat({pairs, x.narrow(dim, size - 1, 1)}, dim) : pairs;
  }
  if (x.size(dim) == 0) {
    Dims shape(x.sizes());
    shape[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = 1;
    x = at::ones(shape, x.scalar_type());
  }
  return reduced(x, dim, keepdim, result);
}

Tensor prod_of_all(const Tensor& x, std::optional<at::ScalarType> dtype) {
  return decompose::prod(x.reshape({-1}), 0, false, dtype);
}

Tensor count_nonzero(const Tensor& x, at::IntArrayRef dim) { return x.ne(0).sum(dim); }

Tensor nansum(const Tensor& x, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  return (x.is_floating_point() ? select(x.ne(x), 0.0, x) : x).sum(dim, keepdim, dtype);
}

}  // namespace

void add_reductions(Table& table) {
  table.add("var", "correction", var);
  table.add("std", "correction", deviation);
  table.add("var_mean", "correction", var_mean);
  table.add("std_mean", "correction", std_mean);
  table.add("native_layer_norm", "", layer_norm);
  table.add("native_group_norm", "", group_norm);
  table.add("linalg_vector_norm", "", vector_norm);
  table.add("renorm", "", renorm);
  table.add("logsumexp", "", logsumexp);
  table.add("max", "dim", extremum<false>);
  table.add("min", "dim", extremum<true>);
  table.add("aminmax", "", aminmax);
  table.add("prod", "dim_int", prod);
  table.add("prod", "", prod_of_all);
  table.add("count_nonzero", "dim_IntList", count_nonzero);
  table.add("nansum", "", nansum);
}

}  // namespace weft::decompose
