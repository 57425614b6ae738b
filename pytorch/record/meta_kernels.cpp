// Shapes of the operations that are common in steps, by PyTorch's own Meta functions in C++. Through the dispatcher
// most of these are Python functions, the first of which imports Dynamo, which takes a second.

#include "record/meta_kernels.h"

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
#include <ATen/ops/all_meta_dispatch.h>
#include <ATen/ops/amax_meta_dispatch.h>
#include <ATen/ops/amin_meta_dispatch.h>
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
#include <ATen/ops/bitwise_not_meta_dispatch.h>
#include <ATen/ops/bitwise_or_meta_dispatch.h>
#include <ATen/ops/bmm_meta_dispatch.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/ceil_meta_dispatch.h>
#include <ATen/ops/clamp_max_meta_dispatch.h>
#include <ATen/ops/clamp_meta_dispatch.h>
#include <ATen/ops/clamp_min_meta_dispatch.h>
#include <ATen/ops/copysign_meta_dispatch.h>
#include <ATen/ops/cos_meta_dispatch.h>
#include <ATen/ops/cosh_meta_dispatch.h>
#include <ATen/ops/cumsum_meta_dispatch.h>
#include <ATen/ops/digamma_meta_dispatch.h>
#include <ATen/ops/div_meta_dispatch.h>
#include <ATen/ops/elu_meta_dispatch.h>
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
#include <ATen/ops/gt_meta_dispatch.h>
#include <ATen/ops/hardsigmoid_meta_dispatch.h>
#include <ATen/ops/hypot_meta_dispatch.h>
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
#include <ATen/ops/reciprocal_meta_dispatch.h>
#include <ATen/ops/remainder_meta_dispatch.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/round_meta_dispatch.h>
#include <ATen/ops/rsqrt_meta_dispatch.h>
#include <ATen/ops/sgn_meta_dispatch.h>
#include <ATen/ops/sigmoid_meta_dispatch.h>
#include <ATen/ops/sign_meta_dispatch.h>
#include <ATen/ops/silu_meta_dispatch.h>
#include <ATen/ops/sin_meta_dispatch.h>
#include <ATen/ops/sinc_meta_dispatch.h>
#include <ATen/ops/sinh_meta_dispatch.h>
#include <ATen/ops/softplus_meta_dispatch.h>
#include <ATen/ops/sqrt_meta_dispatch.h>
#include <ATen/ops/sub_meta_dispatch.h>
#include <ATen/ops/sum_meta_dispatch.h>
#include <ATen/ops/tan_meta_dispatch.h>
#include <ATen/ops/tanh_meta_dispatch.h>
#include <ATen/ops/threshold_meta_dispatch.h>
#include <ATen/ops/trunc_meta_dispatch.h>

#include "record/kernel_table.h"

namespace weft::record {

namespace {

using at::Tensor;

using Table = KernelTable;

Tensor cat(at::TensorList tensors, int64_t dim) { return at::meta::cat(at::ITensorListRef(tensors), dim); }

/// For relu and abs, which have no Meta function in C++. Like neg, they refuse bools.
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

Tensor contiguous(at::IntArrayRef sizes, const at::TensorOptions& options) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= std::max<int64_t>(sizes[i], 1)) strides[i] = stride;
  return at::empty_strided(sizes, strides, options);
}

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

/// The shape is that of the sum over `dims`.
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

/// As the CPU's kernel. PyTorch's Meta function gives the shapes of another device's kernel. The sums of a fast path
/// leave out which bag each index is in.
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

void add_structured(Table& table) {
  table.add("neg", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::neg));
  table.add("exp", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::exp));
  table.add("expm1", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::expm1));
  table.add("log", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::log));
  table.add("log1p", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::log1p));
  table.add("sqrt", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::sqrt));
  table.add("rsqrt", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::rsqrt));
  table.add("tanh", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::tanh));
  table.add("sigmoid", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::sigmoid));
  table.add("silu", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::silu));
  table.add("mish", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::mish));
  table.add("sin", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::sin));
  table.add("cos", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::cos));
  table.add("erf", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::erf));
  table.add("reciprocal", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::reciprocal));
  table.add("floor", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::floor));
  table.add("ceil", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::ceil));
  table.add("sign", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::sign));
  table.add("bitwise_not", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::bitwise_not));
  table.add("hardsigmoid", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::hardsigmoid));
  table.add("round", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::round));
  table.add("log2", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::log2));
  table.add("log10", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::log10));
  table.add("tan", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::tan));
  table.add("sinh", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::sinh));
  table.add("cosh", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::cosh));
  table.add("asin", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::asin));
  table.add("acos", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::acos));
  table.add("atan", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::atan));
  table.add("asinh", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::asinh));
  table.add("acosh", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::acosh));
  table.add("atanh", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::atanh));
  table.add("erfc", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::erfc));
  table.add("exp2", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::exp2));
  table.add("trunc", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::trunc));
  table.add("sgn", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::sgn));
  table.add("frac", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::frac));
  table.add("sinc", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::sinc));
  table.add("erfinv", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::erfinv));
  table.add("lgamma", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::lgamma));
  table.add("digamma", "", static_cast<Tensor (*)(const Tensor&)>(at::meta::digamma));
  table.add("atan2", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::atan2));
  table.add("hypot", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::hypot));
  table.add("fmod", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::fmod));
  table.add("fmax", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::fmax));
  table.add("fmin", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::fmin));
  table.add("copysign", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::copysign));
  table.add("logaddexp", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::logaddexp));
  table.add("logaddexp2", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::logaddexp2));
  table.add("maximum", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::maximum));
  table.add("minimum", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::minimum));
  table.add("mul", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::mul));
  table.add("div", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::div));
  table.add("remainder", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::remainder));
  table.add("div", "Tensor_mode",
            static_cast<Tensor (*)(const Tensor&, const Tensor&, std::optional<c10::string_view>)>(at::meta::div));
  table.add("eq", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::eq));
  table.add("ne", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::ne));
  table.add("lt", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::lt));
  table.add("le", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::le));
  table.add("gt", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::gt));
  table.add("ge", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::ge));
  table.add("bitwise_and", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::bitwise_and));
  table.add("bitwise_or", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::bitwise_or));
  table.add("add", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&, const at::Scalar&)>(at::meta::add));
  table.add("sub", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&, const at::Scalar&)>(at::meta::sub));
  table.add("eq", "Scalar", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::eq));
  table.add("ne", "Scalar", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::ne));
  table.add("lt", "Scalar", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::lt));
  table.add("le", "Scalar", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::le));
  table.add("gt", "Scalar", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::gt));
  table.add("ge", "Scalar", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::ge));
  table.add("pow", "Tensor_Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::pow));
  table.add("pow", "Tensor_Scalar", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::pow));
  table.add("pow", "Scalar", static_cast<Tensor (*)(const at::Scalar&, const Tensor&)>(at::meta::pow));
  table.add("clamp_min", "", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::clamp_min));
  table.add("clamp_max", "", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::clamp_max));
  table.add("clamp", "",
            static_cast<Tensor (*)(const Tensor&, const std::optional<at::Scalar>&, const std::optional<at::Scalar>&)>(
                at::meta::clamp));
  table.add("gelu", "", static_cast<Tensor (*)(const Tensor&, c10::string_view)>(at::meta::gelu));
  table.add(
      "elu", "",
      static_cast<Tensor (*)(const Tensor&, const at::Scalar&, const at::Scalar&, const at::Scalar&)>(at::meta::elu));
  table.add("softplus", "",
            static_cast<Tensor (*)(const Tensor&, const at::Scalar&, const at::Scalar&)>(at::meta::softplus));
  table.add("leaky_relu", "", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(at::meta::leaky_relu));
  table.add("threshold", "",
            static_cast<Tensor (*)(const Tensor&, const at::Scalar&, const at::Scalar&)>(at::meta::threshold));
  table.add("lerp", "Scalar", static_cast<Tensor (*)(const Tensor&, const Tensor&, const at::Scalar&)>(at::meta::lerp));
  table.add("lerp", "Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&)>(at::meta::lerp));
  table.add("addcmul", "",
            static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&)>(at::meta::addcmul));
  table.add("addcdiv", "",
            static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&)>(at::meta::addcdiv));
  table.add("mm", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::mm));
  table.add("bmm", "", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::meta::bmm));
  table.add("addmm", "",
            static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&, const at::Scalar&)>(
                at::meta::addmm));
  table.add("baddbmm", "",
            static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const at::Scalar&, const at::Scalar&)>(
                at::meta::baddbmm));
  table.add("_softmax", "", static_cast<Tensor (*)(const Tensor&, int64_t, bool)>(at::meta::_softmax));
  table.add("_log_softmax", "", static_cast<Tensor (*)(const Tensor&, int64_t, bool)>(at::meta::_log_softmax));
  table.add("sum", "dim_IntList",
            static_cast<Tensor (*)(const Tensor&, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>)>(
                at::meta::sum));
  table.add("mean", "dim",
            static_cast<Tensor (*)(const Tensor&, at::OptionalIntArrayRef, bool, std::optional<at::ScalarType>)>(
                at::meta::mean));
  table.add("amax", "", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef, bool)>(at::meta::amax));
  table.add("amin", "", static_cast<Tensor (*)(const Tensor&, at::IntArrayRef, bool)>(at::meta::amin));
  table.add("argmax", "", static_cast<Tensor (*)(const Tensor&, std::optional<int64_t>, bool)>(at::meta::argmax));
  table.add("argmin", "", static_cast<Tensor (*)(const Tensor&, std::optional<int64_t>, bool)>(at::meta::argmin));
  table.add("cumsum", "",
            static_cast<Tensor (*)(const Tensor&, int64_t, std::optional<at::ScalarType>)>(at::meta::cumsum));
  table.add("gather", "", static_cast<Tensor (*)(const Tensor&, int64_t, const Tensor&, bool)>(at::meta::gather));
  table.add("linalg_vector_norm", "",
            static_cast<Tensor (*)(const Tensor&, const at::Scalar&, at::OptionalIntArrayRef, bool,
                                   std::optional<at::ScalarType>)>(at::meta::linalg_vector_norm));
  table.add("all", "dim", static_cast<Tensor (*)(const Tensor&, int64_t, bool)>(at::meta::all));
  table.add("any", "dim", static_cast<Tensor (*)(const Tensor&, int64_t, bool)>(at::meta::any));
  table.add("max", "dim", static_cast<std::tuple<Tensor, Tensor> (*)(const Tensor&, int64_t, bool)>(at::meta::max));
  table.add("min", "dim", static_cast<std::tuple<Tensor, Tensor> (*)(const Tensor&, int64_t, bool)>(at::meta::min));
}

/// Made at load (base/fork.h).
const Table& table = *[] {
  auto* all = new Table;
  add_structured(*all);
  all->add("cat", "", cat);
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
