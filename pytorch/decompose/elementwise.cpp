#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/special_erfcx.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, const at::Scalar& value) {
  return x + (value.equal(1) ? a : a * value) * b;
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, const at::Scalar& value) {
  return x + (value.equal(1) ? a : a * value) / b;
}

/// Interpolates from the nearer end, as PyTorch does.
Tensor lerp_by_number(const Tensor& start, const Tensor& end, const at::Scalar& weight) {
  Tensor s = wide(start), e = wide(end);
  double w = weight.toDouble();
  return (std::abs(w) < 0.5 ? s + (e - s) * w : e - (e - s) * (1 - w)).to(start.scalar_type());
}

Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight) {
  Tensor s = wide(start), e = wide(end), w = wide(weight);
  return at::where(w.abs().lt(0.5), s + w * (e - s), e - (e - s) * at::rsub(w, 1)).to(start.scalar_type());
}

double largest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<c10::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

Tensor nan_to_num(const Tensor& x, std::optional<double> nan, std::optional<double> above,
                  std::optional<double> below) {
  if (!x.is_floating_point()) return x.clone();
  double limit = largest(x.scalar_type());
  Tensor result = select(x.ne(x), nan.value_or(0.0), x);
  result = select(x.eq(kInfinity), above.value_or(limit), result);
  return select(x.eq(-kInfinity), below.value_or(-limit), result);
}

Tensor frac(const Tensor& x) { return x - x.trunc(); }

Tensor round_decimals(const Tensor& x, int64_t decimals) {
  double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  return decimals >= 0 ? (x * scale).round() / scale : (x / scale).round() * scale;
}

/// log Phi(x). The numbers of a branch become 0 where it isn't taken. There erfcx overflows and log1p(-1) is infinite,
/// and their derivatives multiplied by 0 would be NaN.
Tensor log_ndtr(const Tensor& given) {
  Tensor x = floating(given);
  Tensor t = x * (std::numbers::sqrt2 / 2), low = x.lt(1);
  Tensor left = select(low, t, 0.0), right = select(low, 0.0, t);
  Tensor tail = at::log(at::special_erfcx(left.neg()) / 2) - left * left;
  return at::where(low, tail, at::log1p(at::erfc(right) / -2));
}

Tensor signbit(const Tensor& x) {
  if (!x.is_floating_point()) return x.lt(0);
  return x.lt(0).bitwise_or(x.eq(0).bitwise_and(x.reciprocal().lt(0)));
}

/// The derivative by x is the sign by which x was multiplied, 0 at 0; the derivative by the sign is 0.
Tensor copysign(const Tensor& given, const Tensor& sign) {
  const Tensor x = floating(given.to(at::result_type(given, sign))).abs();
  return at::where(decompose::signbit(sign), x.neg(), x);
}

Tensor copysign_of_number(const Tensor& given, const at::Scalar& sign) {
  const Tensor x = floating(given).abs();
  return std::signbit(sign.toDouble()) ? x.neg() : x;
}

Tensor deg2rad(const Tensor& x) { return floating(x) * (std::numbers::pi / 180); }
Tensor rad2deg(const Tensor& x) { return floating(x) * (180 / std::numbers::pi); }

using MaybeGenerator = std::optional<at::Generator>;

void check_is_default(const MaybeGenerator& generator) {
  if (generator) refuse("random numbers of a generator of its own");
}

/// Draws the same uniform numbers as PyTorch's kernel.
Tensor bernoulli(const Tensor& p, MaybeGenerator generator) {
  check_is_default(generator);
  Tensor chance = wide(p);
  return at::rand(p.sizes(), chance.scalar_type()).lt(chance).to(p.scalar_type());
}

Tensor drawn(at::IntArrayRef sizes, at::ScalarType dtype, const MaybeGenerator& generator) {
  check_is_default(generator);
  return at::randn(sizes, dtype);
}

/// Mean and deviation are detached, since PyTorch's derivatives by them are 0.
Tensor normal(const Tensor& mean, const Tensor& deviation, MaybeGenerator generator) {
  auto sizes = at::infer_size(mean.sizes(), deviation.sizes());
  return drawn(sizes, mean.scalar_type(), generator) * deviation.detach() + mean.detach();
}

Tensor normal_of_one_deviation(const Tensor& mean, double deviation, MaybeGenerator generator) {
  return drawn(mean.sizes(), mean.scalar_type(), generator) * deviation + mean.detach();
}

Tensor normal_of_one_mean(double mean, const Tensor& deviation, MaybeGenerator generator) {
  return drawn(deviation.sizes(), deviation.scalar_type(), generator) * deviation.detach() + mean;
}

}  // namespace

void add_elementwise(Table& table) {
  table.add("addcmul", "", addcmul);
  table.add("addcdiv", "", addcdiv);
  table.add("lerp", "Scalar", lerp_by_number);
  table.add("lerp", "Tensor", lerp);
  table.add("nan_to_num", "", nan_to_num);
  table.add("frac", "", frac);
  table.add("round", "decimals", round_decimals);
  table.add("signbit", "", signbit);
  table.add("copysign", "Tensor", copysign);
  table.add("copysign", "Scalar", copysign_of_number);
  table.add("deg2rad", "", deg2rad);
  table.add("rad2deg", "", rad2deg);
  table.add("bernoulli", "", bernoulli);
  table.add("normal", "Tensor_Tensor", normal);
  table.add("normal", "Tensor_float", normal_of_one_deviation);
  table.add("normal", "float_Tensor", normal_of_one_mean);
  table.add("special_log_ndtr", "", log_ndtr);
}

}  // namespace weft::decompose
