// Decompositions for complex numbers, of operations that have no decomposition or another one for real numbers.

#include <ATen/TensorOperators.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/real.h>
#include <ATen/ops/var.h>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

Tensor complex_vdot(const Tensor& a, const Tensor& b) { return at::dot(a.conj(), b); }

Tensor complex_norm(const Tensor& x, const at::Scalar& ord, at::OptionalIntArrayRef dim, bool keepdim,
                    std::optional<at::ScalarType> dtype) {
  if (dtype) refuse("a norm of complex numbers in another dtype");
  return at::linalg_vector_norm(x.abs(), ord, dim, keepdim);
}

/// The variance is the sum of the parts' variances.
Tensor complex_variance(const Tensor& x, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
                        bool keepdim) {
  return at::var(at::real(x), dim, correction, keepdim) + at::var(at::imag(x), dim, correction, keepdim);
}

Tensor complex_deviation(const Tensor& x, at::OptionalIntArrayRef dim, const std::optional<at::Scalar>& correction,
                         bool keepdim) {
  return root(complex_variance(x, dim, correction, keepdim));
}

Tensor complex_cumsum(const Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  if (dtype && *dtype != x.scalar_type()) refuse("a running sum of complex numbers in another dtype");
  return at::complex(at::cumsum(at::real(x), dim), at::cumsum(at::imag(x), dim));
}

}  // namespace

void add_complex(Table& table) {
  table.add("vdot", "", complex_vdot);
  table.add("linalg_vector_norm", "", complex_norm);
  table.add("cumsum", "", complex_cumsum);
  table.add("var", "correction", complex_variance);
  table.add("std", "correction", complex_deviation);
}

}  // namespace weft::decompose
