// Shapes of the operations that are common in steps, by PyTorch's own Meta functions in C++. The dispatcher would call
// Python functions for most of them. The first such call imports Dynamo, which takes a second.

#include "record/meta/kernels.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/_log_softmax_meta_dispatch.h>
#include <ATen/ops/_softmax_meta_dispatch.h>
#include <ATen/ops/acos_meta_dispatch.h>
#include <ATen/ops/acosh_meta_dispatch.h>
#include <ATen/ops/add_meta_dispatch.h>
#include <ATen/ops/addcdiv_meta_dispatch.h>
#include <ATen/ops/addcmul_meta_dispatch.h>
#include <ATen/ops/addmm_meta_dispatch.h>
#include <ATen/ops/addmv_meta_dispatch.h>
#include <ATen/ops/all_meta_dispatch.h>
#include <ATen/ops/amax_meta_dispatch.h>
#include <ATen/ops/amin_meta_dispatch.h>
#include <ATen/ops/aminmax_meta_dispatch.h>
#include <ATen/ops/any_meta_dispatch.h>
#include <ATen/ops/argmax_meta_dispatch.h>
#include <ATen/ops/argmin_meta_dispatch.h>
#include <ATen/ops/asin_meta_dispatch.h>
#include <ATen/ops/asinh_meta_dispatch.h>
#include <ATen/ops/atan2_meta_dispatch.h>
#include <ATen/ops/atan_meta_dispatch.h>
#include <ATen/ops/atanh_meta_dispatch.h>
#include <ATen/ops/baddbmm_meta_dispatch.h>
#include <ATen/ops/bitwise_and_meta_dispatch.h>
#include <ATen/ops/bitwise_left_shift_meta_dispatch.h>
#include <ATen/ops/bitwise_not_meta_dispatch.h>
#include <ATen/ops/bitwise_or_meta_dispatch.h>
#include <ATen/ops/bitwise_right_shift_meta_dispatch.h>
#include <ATen/ops/bitwise_xor_meta_dispatch.h>
#include <ATen/ops/bmm_meta_dispatch.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/ceil_meta_dispatch.h>
#include <ATen/ops/clamp_max_meta_dispatch.h>
#include <ATen/ops/clamp_meta_dispatch.h>
#include <ATen/ops/clamp_min_meta_dispatch.h>
#include <ATen/ops/copysign_meta_dispatch.h>
#include <ATen/ops/cos_meta_dispatch.h>
#include <ATen/ops/cosh_meta_dispatch.h>
#include <ATen/ops/cumprod_meta_dispatch.h>
#include <ATen/ops/cumsum_meta_dispatch.h>
#include <ATen/ops/digamma_meta_dispatch.h>
#include <ATen/ops/div_meta_dispatch.h>
#include <ATen/ops/elu_meta_dispatch.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq_meta_dispatch.h>
#include <ATen/ops/erf_meta_dispatch.h>
#include <ATen/ops/erfc_meta_dispatch.h>
#include <ATen/ops/erfinv_meta_dispatch.h>
#include <ATen/ops/exp2_meta_dispatch.h>
#include <ATen/ops/exp_meta_dispatch.h>
#include <ATen/ops/expm1_meta_dispatch.h>
#include <ATen/ops/floor_meta_dispatch.h>
#include <ATen/ops/fmax_meta_dispatch.h>
#include <ATen/ops/fmin_meta_dispatch.h>
#include <ATen/ops/fmod_meta_dispatch.h>
#include <ATen/ops/frac_meta_dispatch.h>
#include <ATen/ops/gather_meta_dispatch.h>
#include <ATen/ops/ge_meta_dispatch.h>
#include <ATen/ops/gelu_meta_dispatch.h>
#include <ATen/ops/glu_meta_dispatch.h>
#include <ATen/ops/gt_meta_dispatch.h>
#include <ATen/ops/hardshrink_meta_dispatch.h>
#include <ATen/ops/hardsigmoid_meta_dispatch.h>
#include <ATen/ops/heaviside_meta_dispatch.h>
#include <ATen/ops/hypot_meta_dispatch.h>
#include <ATen/ops/isneginf_meta_dispatch.h>
#include <ATen/ops/isposinf_meta_dispatch.h>
#include <ATen/ops/le_meta_dispatch.h>
#include <ATen/ops/leaky_relu_meta_dispatch.h>
#include <ATen/ops/lerp_meta_dispatch.h>
#include <ATen/ops/lgamma_meta_dispatch.h>
#include <ATen/ops/linalg_vector_norm_meta_dispatch.h>
#include <ATen/ops/log10_meta_dispatch.h>
#include <ATen/ops/log1p_meta_dispatch.h>
#include <ATen/ops/log2_meta_dispatch.h>
#include <ATen/ops/log_meta_dispatch.h>
#include <ATen/ops/logaddexp2_meta_dispatch.h>
#include <ATen/ops/logaddexp_meta_dispatch.h>
#include <ATen/ops/lt_meta_dispatch.h>
#include <ATen/ops/max_meta_dispatch.h>
#include <ATen/ops/maximum_meta_dispatch.h>
#include <ATen/ops/mean_meta_dispatch.h>
#include <ATen/ops/min_meta_dispatch.h>
#include <ATen/ops/minimum_meta_dispatch.h>
#include <ATen/ops/mish_meta_dispatch.h>
#include <ATen/ops/mm_meta_dispatch.h>
#include <ATen/ops/mul_meta_dispatch.h>
#include <ATen/ops/ne_meta_dispatch.h>
#include <ATen/ops/neg_meta_dispatch.h>
#include <ATen/ops/pow_meta_dispatch.h>
#include <ATen/ops/prod_meta_dispatch.h>
#include <ATen/ops/reciprocal_meta_dispatch.h>
#include <ATen/ops/remainder_meta_dispatch.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/round_meta_dispatch.h>
#include <ATen/ops/rsqrt_meta_dispatch.h>
#include <ATen/ops/sgn_meta_dispatch.h>
#include <ATen/ops/sigmoid_meta_dispatch.h>
#include <ATen/ops/sign_meta_dispatch.h>
#include <ATen/ops/signbit_meta_dispatch.h>
#include <ATen/ops/silu_meta_dispatch.h>
#include <ATen/ops/sin_meta_dispatch.h>
#include <ATen/ops/sinc_meta_dispatch.h>
#include <ATen/ops/sinh_meta_dispatch.h>
#include <ATen/ops/softplus_meta_dispatch.h>
#include <ATen/ops/softshrink_meta_dispatch.h>
#include <ATen/ops/sqrt_meta_dispatch.h>
#include <ATen/ops/sub_meta_dispatch.h>
#include <ATen/ops/sum_meta_dispatch.h>
#include <ATen/ops/tan_meta_dispatch.h>
#include <ATen/ops/tanh_meta_dispatch.h>
#include <ATen/ops/threshold_meta_dispatch.h>
#include <ATen/ops/trunc_meta_dispatch.h>
#include <ATen/ops/view_meta_dispatch.h>
#include <ATen/ops/xlogy_meta_dispatch.h>

#include "record/kernel_table.h"
#include "record/meta/shapes.h"
#include "record/recording_internal.h"

namespace weft::record {

namespace {

using at::Tensor;

using Table = KernelTable;

}  // namespace

Tensor contiguous(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty_strided(sizes, dense_strides(sizes), options);
}

Tensor same(const Tensor& x) { return at::native::empty_like(x, {}, {}, {}, {}, at::MemoryFormat::Preserve); }

namespace {

Tensor cat(at::TensorList tensors, int64_t dim) { return at::meta::cat(at::ITensorListRef(tensors), dim); }

/// For relu and abs, which have no Meta function in C++. They refuse bools, as neg does.
Tensor like(const Tensor& x) { return at::meta::neg(x); }
Tensor absolute(const Tensor& x) { return like(x).to(at::toRealValueType(x.scalar_type())); }

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  Tensor undefined;
  return at::TensorIteratorConfig()
      .check_all_same_dtype(false)
      .allow_cpu_scalars(true)
      .add_output(undefined)
      .add_const_input(condition)
      .add_const_input(a)
      .add_const_input(b)
      .declare_static_dtype_and_device(at::result_type(a, b), c10::Device(c10::kMeta))
      .build()
      .output();
}

using at::native::wrapped_scalar_tensor;

Tensor add_number(const Tensor& x, const at::Scalar& y, const at::Scalar& alpha) {
  return at::meta::add(x, wrapped_scalar_tensor(y), alpha);
}

Tensor sub_number(const Tensor& x, const at::Scalar& y, const at::Scalar& alpha) {
  return at::meta::sub(x, wrapped_scalar_tensor(y), alpha);
}

Tensor rsub_number(const Tensor& x, const at::Scalar& y, const at::Scalar& alpha) {
  return at::meta::sub(wrapped_scalar_tensor(y), x, alpha);
}

Tensor rsub(const Tensor& x, const Tensor& y, const at::Scalar& alpha) { return at::meta::sub(y, x, alpha); }

Tensor mul_number(const Tensor& x, const at::Scalar& y) { return at::meta::mul(x, wrapped_scalar_tensor(y)); }
Tensor div_number(const Tensor& x, const at::Scalar& y) { return at::meta::div(x, wrapped_scalar_tensor(y)); }

Tensor masked_fill(const Tensor& x, const Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  return contiguous(at::infer_size(x.sizes(), mask.sizes()), x.options());
}

Tensor masked_fill_number(const Tensor& x, const Tensor& mask, const at::Scalar&) { return masked_fill(x, mask); }

Tensor masked_fill_tensor(const Tensor& x, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  return masked_fill(x, mask);
}

/// The type of mean and rstd in the CPU's kernels of norms: the input's type, or float32 if the parameters have
/// another.
at::TensorOptions statistics_options(const Tensor& x, const std::optional<Tensor>& weight,
                                     const std::optional<Tensor>& bias) {
  bool is_mixed = false;
  for (const auto* parameter : {&weight, &bias})
    is_mixed |= parameter->has_value() && (*parameter)->defined() && (*parameter)->scalar_type() != x.scalar_type();
  return x.options().dtype(is_mixed ? at::kFloat : x.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& x, at::IntArrayRef shape,
                                                     const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& bias, double) {
  const auto rank = static_cast<size_t>(x.dim()), normalized = shape.size();
  TORCH_CHECK(normalized >= 1 && normalized <= rank && x.sizes().slice(rank - normalized) == shape,
              "Given normalized_shape=", shape, ", expected input with shape [*, ", shape, "], but got input of size",
              x.sizes());
  std::vector<int64_t> statistics(x.sizes().begin(), x.sizes().end());
  for (size_t i = rank - normalized; i < rank; ++i) statistics[i] = 1;
  auto options = statistics_options(x, weight, bias);
  return {contiguous(x.sizes(), x.options()), contiguous(statistics, options), contiguous(statistics, options)};
}

Tensor div_mode_number(const Tensor& x, const at::Scalar& y, std::optional<c10::string_view> mode) {
  return at::meta::div(x, wrapped_scalar_tensor(y), mode);
}

Tensor floored(const Tensor& x, const Tensor& y) { return at::meta::div(x, y, "floor"); }
Tensor floored_by_number(const Tensor& x, const at::Scalar& y) { return floored(x, wrapped_scalar_tensor(y)); }
Tensor fmod_number(const Tensor& x, const at::Scalar& y) { return at::meta::fmod(x, wrapped_scalar_tensor(y)); }
Tensor remainder_number(const Tensor& x, const at::Scalar& y) {
  return at::meta::remainder(x, wrapped_scalar_tensor(y));
}

Tensor celu(const Tensor& x, const at::Scalar& alpha) { return at::meta::elu(x, alpha, 1, 1); }
Tensor selu(const Tensor& x) { return at::meta::elu(x, 1, 1, 1); }

Tensor hardtanh(const Tensor& x, const at::Scalar&, const at::Scalar&) {
  TORCH_CHECK(x.scalar_type() != at::kBool, "Bool inputs not supported for hardtanh");
  return like(x);
}

using Dims = at::OptionalIntArrayRef;
using Correction = std::optional<at::Scalar>;

/// The shape of std or var is the shape of the sum over `dims`.
Tensor deviation(const Tensor& x, Dims dims, const Correction&, bool keepdim) {
  TORCH_CHECK(at::isFloatingType(x.scalar_type()) || at::isComplexType(x.scalar_type()),
              "std and var only support floating point and complex dtypes");
  return at::meta::sum(x, dims, keepdim, std::nullopt).to(at::toRealValueType(x.scalar_type()));
}

std::tuple<Tensor, Tensor> deviation_and_mean(const Tensor& x, Dims dims, const Correction& correction, bool keepdim) {
  return {deviation(x, dims, correction, keepdim), at::meta::sum(x, dims, keepdim, std::nullopt)};
}

Tensor logsumexp(const Tensor& x, at::IntArrayRef dims, bool keepdim) {
  const auto type =
      at::isIntegralType(x.scalar_type(), true) ? at::typeMetaToScalarType(at::get_default_dtype()) : x.scalar_type();
  return at::meta::sum(x, dims, keepdim, type);
}

std::tuple<Tensor, Tensor, Tensor> native_group_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& bias, int64_t n, int64_t, int64_t,
                                                     int64_t groups, double) {
  auto options = statistics_options(x, weight, bias);
  const std::array<int64_t, 2> statistics{n, groups};
  return {contiguous(x.sizes(), x.options()), contiguous(statistics, options), contiguous(statistics, options)};
}

using FourTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

/// The shapes of the CPU's kernel; PyTorch's Meta function returns those of another device's kernel. Sums that take a
/// fast path return no bag for each index.
FourTensors embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool, int64_t mode, bool,
                          const std::optional<Tensor>& scale, bool include_last_offset, int64_t padding_idx) {
  constexpr int64_t kSum = 0, kMax = 2;
  const bool is_scaled = scale && scale->defined();
  const auto type = weight.scalar_type();
  const bool is_fast = mode == kSum && padding_idx < 0 && weight.stride(1) == 1 &&
                       !(is_scaled && scale->stride(0) != 1) &&
                       (type == at::kFloat || type == at::kHalf || type == at::kBFloat16);
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0), columns = weight.size(1);
  const auto counts = [&](at::IntArrayRef sizes) { return contiguous(sizes, offsets.options()); };
  return {contiguous({bags, columns}, weight.options()), counts({is_fast ? 0 : indices.size(0)}), counts({bags}),
          mode == kMax ? counts({bags, columns}) : counts({bags})};
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t, bool, bool) {
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  TORCH_CHECK(
      indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
      "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got ",
      indices.toString(), " instead (while checking arguments for embedding)");
  std::vector<int64_t> sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(weight.size(1));
  return contiguous(sizes, weight.options());
}

Tensor clone(const Tensor& x, std::optional<at::MemoryFormat> format) {
  return at::native::empty_like(x, {}, {}, {}, {}, format.value_or(at::MemoryFormat::Preserve));
}

void add_structured(Table& table) {
  table.add<Tensor(const Tensor&)>("neg", "", at::meta::neg);
  table.add<Tensor(const Tensor&)>("exp", "", at::meta::exp);
  table.add<Tensor(const Tensor&)>("expm1", "", at::meta::expm1);
  table.add<Tensor(const Tensor&)>("log", "", at::meta::log);
  table.add<Tensor(const Tensor&)>("log1p", "", at::meta::log1p);
  table.add<Tensor(const Tensor&)>("sqrt", "", at::meta::sqrt);
  table.add<Tensor(const Tensor&)>("rsqrt", "", at::meta::rsqrt);
  table.add<Tensor(const Tensor&)>("tanh", "", at::meta::tanh);
  table.add<Tensor(const Tensor&)>("sigmoid", "", at::meta::sigmoid);
  table.add<Tensor(const Tensor&)>("silu", "", at::meta::silu);
  table.add<Tensor(const Tensor&)>("mish", "", at::meta::mish);
  table.add<Tensor(const Tensor&)>("sin", "", at::meta::sin);
  table.add<Tensor(const Tensor&)>("cos", "", at::meta::cos);
  table.add<Tensor(const Tensor&)>("erf", "", at::meta::erf);
  table.add<Tensor(const Tensor&)>("reciprocal", "", at::meta::reciprocal);
  table.add<Tensor(const Tensor&)>("floor", "", at::meta::floor);
  table.add<Tensor(const Tensor&)>("ceil", "", at::meta::ceil);
  table.add<Tensor(const Tensor&)>("sign", "", at::meta::sign);
  table.add<Tensor(const Tensor&)>("bitwise_not", "", at::meta::bitwise_not);
  table.add<Tensor(const Tensor&)>("hardsigmoid", "", at::meta::hardsigmoid);
  table.add<Tensor(const Tensor&)>("round", "", at::meta::round);
  table.add<Tensor(const Tensor&)>("log2", "", at::meta::log2);
  table.add<Tensor(const Tensor&)>("log10", "", at::meta::log10);
  table.add<Tensor(const Tensor&)>("tan", "", at::meta::tan);
  table.add<Tensor(const Tensor&)>("sinh", "", at::meta::sinh);
  table.add<Tensor(const Tensor&)>("cosh", "", at::meta::cosh);
  table.add<Tensor(const Tensor&)>("asin", "", at::meta::asin);
  table.add<Tensor(const Tensor&)>("acos", "", at::meta::acos);
  table.add<Tensor(const Tensor&)>("atan", "", at::meta::atan);
  table.add<Tensor(const Tensor&)>("asinh", "", at::meta::asinh);
  table.add<Tensor(const Tensor&)>("acosh", "", at::meta::acosh);
  table.add<Tensor(const Tensor&)>("atanh", "", at::meta::atanh);
  table.add<Tensor(const Tensor&)>("erfc", "", at::meta::erfc);
  table.add<Tensor(const Tensor&)>("exp2", "", at::meta::exp2);
  table.add<Tensor(const Tensor&)>("trunc", "", at::meta::trunc);
  table.add<Tensor(const Tensor&)>("sgn", "", at::meta::sgn);
  table.add<Tensor(const Tensor&)>("frac", "", at::meta::frac);
  table.add<Tensor(const Tensor&)>("sinc", "", at::meta::sinc);
  table.add<Tensor(const Tensor&)>("erfinv", "", at::meta::erfinv);
  table.add<Tensor(const Tensor&)>("lgamma", "", at::meta::lgamma);
  table.add<Tensor(const Tensor&)>("digamma", "", at::meta::digamma);
  table.add<Tensor(const Tensor&, const Tensor&)>("atan2", "", at::meta::atan2);
  table.add<Tensor(const Tensor&, const Tensor&)>("hypot", "", at::meta::hypot);
  table.add<Tensor(const Tensor&, const Tensor&)>("fmod", "Tensor", at::meta::fmod);
  table.add<Tensor(const Tensor&, const Tensor&)>("fmax", "", at::meta::fmax);
  table.add<Tensor(const Tensor&, const Tensor&)>("fmin", "", at::meta::fmin);
  table.add<Tensor(const Tensor&, const Tensor&)>("copysign", "Tensor", at::meta::copysign);
  table.add<Tensor(const Tensor&, const Tensor&)>("logaddexp", "", at::meta::logaddexp);
  table.add<Tensor(const Tensor&, const Tensor&)>("logaddexp2", "", at::meta::logaddexp2);
  table.add<Tensor(const Tensor&, const Tensor&)>("maximum", "", at::meta::maximum);
  table.add<Tensor(const Tensor&, const Tensor&)>("minimum", "", at::meta::minimum);
  table.add<Tensor(const Tensor&, const Tensor&)>("mul", "Tensor", at::meta::mul);
  table.add<Tensor(const Tensor&, const Tensor&)>("div", "Tensor", at::meta::div);
  table.add<Tensor(const Tensor&, const Tensor&)>("remainder", "Tensor", at::meta::remainder);
  table.add<Tensor(const Tensor&, const Tensor&, std::optional<c10::string_view>)>("div", "Tensor_mode", at::meta::div);
  table.add<Tensor(const Tensor&, const Tensor&)>("eq", "Tensor", at::meta::eq);
  table.add<Tensor(const Tensor&, const Tensor&)>("ne", "Tensor", at::meta::ne);
  table.add<Tensor(const Tensor&, const Tensor&)>("lt", "Tensor", at::meta::lt);
  table.add<Tensor(const Tensor&, const Tensor&)>("le", "Tensor", at::meta::le);
  table.add<Tensor(const Tensor&, const Tensor&)>("gt", "Tensor", at::meta::gt);
  table.add<Tensor(const Tensor&, const Tensor&)>("ge", "Tensor", at::meta::ge);
  table.add<Tensor(const Tensor&, const Tensor&)>("bitwise_and", "Tensor", at::meta::bitwise_and);
  table.add<Tensor(const Tensor&, const Tensor&)>("bitwise_or", "Tensor", at::meta::bitwise_or);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("add", "Tensor", at::meta::add);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("sub", "Tensor", at::meta::sub);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("eq", "Scalar", at::meta::eq);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("ne", "Scalar", at::meta::ne);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("lt", "Scalar", at::meta::lt);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("le", "Scalar", at::meta::le);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("gt", "Scalar", at::meta::gt);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("ge", "Scalar", at::meta::ge);
  table.add<Tensor(const Tensor&, const Tensor&)>("pow", "Tensor_Tensor", at::meta::pow);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("pow", "Tensor_Scalar", at::meta::pow);
  table.add<Tensor(const at::Scalar&, const Tensor&)>("pow", "Scalar", at::meta::pow);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("clamp_min", "", at::meta::clamp_min);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("clamp_max", "", at::meta::clamp_max);
  table.add<Tensor(const Tensor&, const std::optional<at::Scalar>&, const std::optional<at::Scalar>&)>("clamp", "",
                                                                                                       at::meta::clamp);
  table.add<Tensor(const Tensor&, c10::string_view)>("gelu", "", at::meta::gelu);
  table.add<Tensor(const Tensor&, const at::Scalar&, const at::Scalar&, const at::Scalar&)>("elu", "", at::meta::elu);
  table.add<Tensor(const Tensor&, const at::Scalar&, const at::Scalar&)>("softplus", "", at::meta::softplus);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("leaky_relu", "", at::meta::leaky_relu);
  table.add<Tensor(const Tensor&, const at::Scalar&, const at::Scalar&)>("threshold", "", at::meta::threshold);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("lerp", "Scalar", at::meta::lerp);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&)>("lerp", "Tensor", at::meta::lerp);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&)>("addcmul", "", at::meta::addcmul);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&)>("addcdiv", "", at::meta::addcdiv);
  table.add<Tensor(const Tensor&, const Tensor&)>("mm", "", at::meta::mm);
  table.add<Tensor(const Tensor&, const Tensor&)>("bmm", "", at::meta::bmm);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&, const at::Scalar&)>("addmm", "",
                                                                                                       at::meta::addmm);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&, const at::Scalar&)>(
      "baddbmm", "", at::meta::baddbmm);
  table.add<Tensor(const Tensor&, int64_t, bool)>("_softmax", "", at::meta::_softmax);
  table.add<Tensor(const Tensor&, int64_t, bool)>("_log_softmax", "", at::meta::_log_softmax);
  table.add<Tensor(const Tensor&, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>)>("sum", "dim_IntList",
                                                                                                 at::meta::sum);
  table.add<Tensor(const Tensor&, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>)>("mean", "dim",
                                                                                                 at::meta::mean);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool)>("amax", "", at::meta::amax);
  table.add<Tensor(const Tensor&, at::IntArrayRef, bool)>("amin", "", at::meta::amin);
  table.add<Tensor(const Tensor&, std::optional<int64_t>, bool)>("argmax", "", at::meta::argmax);
  table.add<Tensor(const Tensor&, std::optional<int64_t>, bool)>("argmin", "", at::meta::argmin);
  table.add<Tensor(const Tensor&, int64_t, std::optional<at::ScalarType>)>("cumsum", "", at::meta::cumsum);
  table.add<Tensor(const Tensor&, int64_t, const Tensor&, bool)>("gather", "", at::meta::gather);
  table.add<Tensor(const Tensor&, const at::Scalar&, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>)>(
      "linalg_vector_norm", "", at::meta::linalg_vector_norm);
  table.add<Tensor(const Tensor&, int64_t, bool)>("all", "dim", at::meta::all);
  table.add<Tensor(const Tensor&, int64_t, bool)>("any", "dim", at::meta::any);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, int64_t, bool)>("max", "dim", at::meta::max);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, int64_t, bool)>("min", "dim", at::meta::min);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&, const at::Scalar&)>("addmv", "",
                                                                                                       at::meta::addmv);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, std::optional<int64_t>, bool)>("aminmax", "", at::meta::aminmax);
  table.add<Tensor(const Tensor&, const Tensor&)>("bitwise_left_shift", "Tensor", at::meta::bitwise_left_shift);
  table.add<Tensor(const Tensor&, const Tensor&)>("bitwise_right_shift", "Tensor", at::meta::bitwise_right_shift);
  table.add<Tensor(const Tensor&, const Tensor&)>("bitwise_xor", "Tensor", at::meta::bitwise_xor);
  table.add<Tensor(const Tensor&, int64_t, std::optional<at::ScalarType>)>("cumprod", "", at::meta::cumprod);
  table.add<Tensor(const Tensor&, int64_t)>("glu", "", at::meta::glu);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("hardshrink", "", at::meta::hardshrink);
  table.add<Tensor(const Tensor&, const Tensor&)>("heaviside", "", at::meta::heaviside);
  table.add<Tensor(const Tensor&)>("isneginf", "", at::meta::isneginf);
  table.add<Tensor(const Tensor&)>("isposinf", "", at::meta::isposinf);
  table.add<Tensor(const Tensor&, int64_t, bool, std::optional<at::ScalarType>)>("prod", "dim_int", at::meta::prod);
  table.add<Tensor(const Tensor&)>("signbit", "", at::meta::signbit);
  table.add<Tensor(const Tensor&, const at::Scalar&)>("softshrink", "", at::meta::softshrink);
  table.add<Tensor(const Tensor&, const Tensor&)>("xlogy", "Tensor", at::meta::xlogy);
}

/// Made at load (base/fork.h).
const Table& table = *[] {
  auto* all = new Table;
  add_structured(*all);
  add_gradients(*all);
  add_selections(*all);
  add_movement(*all);
  add_functions(*all);
  add_convolutions(*all);
  all->add("cat", "", cat);
  all->add("clone", "", clone);
  all->add("embedding", "", embedding);
  all->add("_unsafe_view", "", at::meta::view);
  all->add("empty_like", "", at::native::empty_like);
  all->add("relu", "", like);
  all->add("abs", "", absolute);
  all->add("where", "self", where);
  all->add("add", "Scalar", add_number);
  all->add("sub", "Scalar", sub_number);
  all->add("rsub", "Scalar", rsub_number);
  all->add("rsub", "Tensor", rsub);
  all->add("mul", "Scalar", mul_number);
  all->add("div", "Scalar", div_number);
  all->add("masked_fill", "Scalar", masked_fill_number);
  all->add("masked_fill", "Tensor", masked_fill_tensor);
  all->add("hardswish", "", like);
  all->add("celu", "", celu);
  all->add("selu", "", selu);
  all->add("hardtanh", "", hardtanh);
  all->add("div", "Scalar_mode", div_mode_number);
  all->add("floor_divide", "", floored);
  all->add("floor_divide", "Scalar", floored_by_number);
  all->add("remainder", "Scalar", remainder_number);
  all->add("fmod", "Scalar", fmod_number);
  all->add("var", "correction", deviation);
  all->add("std", "correction", deviation);
  all->add("var_mean", "correction", deviation_and_mean);
  all->add("std_mean", "correction", deviation_and_mean);
  all->add("logsumexp", "", logsumexp);
  all->add("native_group_norm", "", native_group_norm);
  all->add("native_layer_norm", "", native_layer_norm);
  all->add("_embedding_bag", "", embedding_bag);
  return all;
}();

}  // namespace

const c10::KernelFunction* meta_kernel(const c10::OperatorName& name) { return table.find(name); }

}  // namespace weft::record
