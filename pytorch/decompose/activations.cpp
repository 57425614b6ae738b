// Activations. Numbers in an untaken branch of a `where` are replaced before they can overflow: the derivative of that
// branch is multiplied by 0, and must not be infinite.

#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <numbers>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

Tensor gelu(const Tensor& x, std::string_view approximate) {
  Tensor w = wide(x);
  if (approximate == "tanh") {
    double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    Tensor inner = (w + w * w * w * 0.044715) * scale;
    return (w * 0.5 * (inner.tanh() + 1)).to(x.scalar_type());
  }
  return (w * 0.5 * ((w * (std::numbers::sqrt2 / 2)).erf() + 1)).to(x.scalar_type());
}

Tensor elu(const Tensor& x, const at::Scalar& alpha, const at::Scalar& scale, const at::Scalar& input_scale) {
  Tensor positive = x.gt(0), w = wide(x);
  Tensor low = at::expm1(select(positive, 0.0, w) * input_scale) * (alpha.toDouble() * scale.toDouble());
  return at::where(positive, w * scale, low).to(x.scalar_type());
}

Tensor celu(const Tensor& x, const at::Scalar& alpha) { return decompose::elu(x, alpha, 1.0, 1.0 / alpha.toDouble()); }

Tensor selu(const Tensor& x) {
  return decompose::elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0);
}

Tensor softplus(const Tensor& x, const at::Scalar& beta, const at::Scalar& threshold) {
  Tensor scaled = wide(x) * beta;
  Tensor linear = scaled.gt(threshold);
  Tensor curve = at::log1p(select(linear, 0.0, scaled).exp()) / beta;
  return at::where(linear, wide(x), curve).to(x.scalar_type());
}

Tensor mish(const Tensor& x) {
  Tensor w = wide(x);
  return (w * decompose::softplus(w, 1, 20).tanh()).to(x.scalar_type());
}

std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& x) {
  Tensor w = wide(x);
  Tensor rest = w.abs().neg().exp();
  Tensor y = at::minimum(w, at::zeros_like(w)) - at::log1p(rest);
  return {y.to(x.scalar_type()), rest.to(x.scalar_type())};
}

Tensor leaky_relu(const Tensor& x, const at::Scalar& negative_slope) {
  return at::where(x.gt(0), x, x * negative_slope);
}

Tensor prelu(const Tensor& x, const Tensor& weight) { return at::where(x.gt(0), x, x * weight); }

Tensor threshold(const Tensor& x, const at::Scalar& threshold, const at::Scalar& value) {
  return select(x.le(threshold), value, x);
}

Tensor hardtanh(const Tensor& x, const at::Scalar& low, const at::Scalar& high) {
  return select(x.le(low), low, select(x.ge(high), high, x));
}

Tensor hardsigmoid(const Tensor& x) {
  Tensor line = ((wide(gated(x.eq(x), x)) + 3) / 6).to(x.scalar_type());  // at NaN the derivative is 0
  return select(x.le(-3), 0.0, select(x.ge(3), 1.0, line));
}

Tensor hardswish(const Tensor& x) {
  Tensor w = wide(x);
  Tensor curve = (w * (w + 3) / 6).to(x.scalar_type());
  return select(x.le(-3), 0.0, at::where(x.lt(3), curve, x));
}

Tensor hardshrink(const Tensor& x, const at::Scalar& lambd) {
  return select(x.ge(-lambd).bitwise_and(x.le(lambd)), 0.0, x);
}

Tensor softshrink(const Tensor& x, const at::Scalar& lambd) {
  return at::where(x.gt(lambd), x - lambd, at::where(x.lt(-lambd), x + lambd, x * 0));
}

Tensor glu(const Tensor& x, int64_t dim) {
  int64_t half = x.size(dim) / 2;
  return x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid();
}

/// A row that is all -inf becomes zeros.
Tensor safe_softmax(const Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  Tensor nothing = x.eq(-std::numeric_limits<double>::infinity()).all(dim, true);
  return select(nothing, 0.0, select(nothing, 0.0, x).softmax(dim, dtype));
}

}  // namespace

void add_activations(Table& table) {
  table.add("gelu", "", gelu);
  table.add("elu", "", elu);
  table.add("celu", "", celu);
  table.add("selu", "", selu);
  table.add("softplus", "", softplus);
  table.add("mish", "", mish);
  table.add("log_sigmoid_forward", "", log_sigmoid_forward);
  table.add("leaky_relu", "", leaky_relu);
  table.add("_prelu_kernel", "", prelu);
  table.add("threshold", "", threshold);
  table.add("hardtanh", "", hardtanh);
  table.add("hardsigmoid", "", hardsigmoid);
  table.add("hardswish", "", hardswish);
  table.add("hardshrink", "", hardshrink);
  table.add("softshrink", "", softshrink);
  table.add("glu", "", glu);
  table.add("_safe_softmax", "", safe_softmax);
}

}  // namespace weft::decompose
