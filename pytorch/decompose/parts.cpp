#include "decompose/parts.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>

#include <numeric>

namespace weft::decompose {

void refuse(const std::string& reason) { C10_THROW_ERROR(NotImplementedError, reason); }

Tensor number_like(const at::Scalar& number, const Tensor& like) {
  return at::full({}, number, at::TensorOptions().dtype(like.scalar_type()));
}

Tensor gated(const Tensor& passes, const Tensor& x) { return at::where(passes, x, x.detach()); }

Tensor select(const Tensor& condition, const at::Scalar& x, const Tensor& y) {
  return at::where(condition, number_like(x, y), y);
}

Tensor select(const Tensor& condition, const Tensor& x, const at::Scalar& y) {
  return at::where(condition, x, number_like(y, x));
}

Tensor wide(const Tensor& x) {
  bool is_half = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  return is_half ? x.to(at::kFloat) : x;
}

Tensor floating(const Tensor& x) {
  const bool is_integer = at::isIntegralType(x.scalar_type(), /*includeBool=*/true);
  return is_integer ? x.to(c10::get_default_dtype_as_scalartype()) : x;
}

Tensor summable(const Tensor& x, std::optional<at::ScalarType> dtype) {
  return x.to(dtype.value_or(at::isIntegralType(x.scalar_type(), true) ? at::kLong : x.scalar_type()));
}

Tensor root(const Tensor& x) {
  Tensor zero = x.eq(0);
  return select(zero, 0.0, at::sqrt(select(zero, 1.0, x)));
}

Dims dims_of(const Tensor& x, at::OptionalIntArrayRef dims) {
  Dims result;
  if (dims.has_value())
    for (int64_t dim : *dims) result.push_back(at::maybe_wrap_dim(dim, x.dim()));
  if (result.empty()) {
    result.resize(static_cast<size_t>(x.dim()));
    std::iota(result.begin(), result.end(), int64_t{0});
  }
  return result;
}

Tensor reduced(const Tensor& x, at::IntArrayRef dims, bool keepdim, at::ScalarType dtype) {
  return (keepdim ? x : x.squeeze(dims)).to(dtype);
}

Tensor of_length(const Tensor& x, int64_t count) {
  const int64_t size = x.size(-1);
  if (size == count) return x;
  return count < size ? x.narrow(-1, 0, count) : at::constant_pad_nd(x, {0, count - size});
}

Tensor positions(const Tensor& x, int64_t dim) {
  Dims shape(static_cast<size_t>(x.dim()), 1);
  if (x.dim() > 0) shape[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = x.size(dim);
  return at::arange(x.dim() > 0 ? x.size(dim) : 1, at::kLong).reshape(shape);
}

}  // namespace weft::decompose
