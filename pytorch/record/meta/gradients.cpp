// Shapes of gradients, by PyTorch's own Meta functions in C++ where it has them.

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/_log_softmax_backward_data_meta_dispatch.h>
#include <ATen/ops/_softmax_backward_data_meta_dispatch.h>
#include <ATen/ops/_softmax_meta_dispatch.h>
#include <ATen/ops/elu_backward_meta_dispatch.h>
#include <ATen/ops/gelu_backward_meta_dispatch.h>
#include <ATen/ops/hardshrink_backward_meta_dispatch.h>
#include <ATen/ops/hardsigmoid_backward_meta_dispatch.h>
#include <ATen/ops/leaky_relu_backward_meta_dispatch.h>
#include <ATen/ops/logit_backward_meta_dispatch.h>
#include <ATen/ops/mse_loss_meta_dispatch.h>
#include <ATen/ops/nll_loss_backward_meta_dispatch.h>
#include <ATen/ops/nll_loss_forward_meta_dispatch.h>
#include <ATen/ops/sigmoid_backward_meta_dispatch.h>
#include <ATen/ops/silu_backward_meta_dispatch.h>
#include <ATen/ops/smooth_l1_loss_meta_dispatch.h>
#include <ATen/ops/softplus_backward_meta_dispatch.h>
#include <ATen/ops/softshrink_backward_meta_dispatch.h>
#include <ATen/ops/tanh_backward_meta_dispatch.h>
#include <ATen/ops/threshold_backward_meta_dispatch.h>

#include <array>

#include "record/meta/shapes.h"

namespace weft::record {

using at::Tensor;

namespace {

/// The gradient has the input's shape, even if the loss is a mean or a sum.
Tensor mse_loss_backward(const Tensor&, const Tensor& x, const Tensor& target, int64_t) {
  return contiguous(at::infer_size(x.sizes(), target.sizes()), x.options());
}

Tensor embedding_dense_backward(const Tensor& gradient, const Tensor&, int64_t rows, int64_t, bool) {
  return contiguous({rows, gradient.size(-1)}, gradient.options());
}

/// The shape of the tensor that was sliced. Elements outside of the slice are zeros.
Tensor slice_backward(const Tensor& gradient, at::IntArrayRef sizes, int64_t, int64_t, int64_t, int64_t) {
  return contiguous(sizes, gradient.options());
}

Tensor select_backward(const Tensor& gradient, at::IntArrayRef sizes, int64_t, int64_t) {
  return contiguous(sizes, gradient.options());
}

Tensor optional_like(bool is_wanted, const std::optional<Tensor>& parameter) {
  return is_wanted && parameter && parameter->defined() ? contiguous(parameter->sizes(), parameter->options())
                                                        : Tensor();
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(const Tensor&, const Tensor& x, at::IntArrayRef,
                                                              const Tensor&, const Tensor&,
                                                              const std::optional<Tensor>& weight,
                                                              const std::optional<Tensor>& bias,
                                                              std::array<bool, 3> wanted) {
  return {optional_like(wanted[0], x), optional_like(wanted[1], weight), optional_like(wanted[2], bias)};
}

/// softmax, with 0 for rows of which all elements are -inf.
Tensor safe_softmax(const Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype) {
  return at::meta::_softmax(dtype && *dtype != x.scalar_type() ? x.to(*dtype) : x, dim, false);
}

// ---- attention

using AttentionMask = std::optional<Tensor>;

std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor&, const Tensor&, double, bool, const AttentionMask&,
                                     std::optional<double>) {
  const auto dtype = at::toOpMathType(q.scalar_type());
  const Tensor sums = contiguous({q.size(0), q.size(2), q.size(1)}, q.options().dtype(dtype)).transpose(1, 2);
  return {same(q), sums};
}

Tensor with_heads_last(const Tensor& x) {
  return contiguous({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                                                      const Tensor&, const Tensor&, double, bool, const AttentionMask&,
                                                      std::optional<double>) {
  return {with_heads_last(q), with_heads_last(k), with_heads_last(v)};
}

}  // namespace

void add_gradients(KernelTable& table) {
  table.add<Tensor(const Tensor&, const Tensor&, int64_t, at::ScalarType)>("_log_softmax_backward_data", "",
                                                                           at::meta::_log_softmax_backward_data);
  table.add<Tensor(const Tensor&, const Tensor&, int64_t, at::ScalarType)>("_softmax_backward_data", "",
                                                                           at::meta::_softmax_backward_data);
  table.add<Tensor(const Tensor&, const at::Scalar&, const at::Scalar&, const at::Scalar&, bool, const Tensor&)>(
      "elu_backward", "", at::meta::elu_backward);
  table.add<Tensor(const Tensor&, const Tensor&, c10::string_view)>("gelu_backward", "", at::meta::gelu_backward);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("hardshrink_backward", "",
                                                                     at::meta::hardshrink_backward);
  table.add<Tensor(const Tensor&, const Tensor&)>("hardsigmoid_backward", "", at::meta::hardsigmoid_backward);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&, bool)>("leaky_relu_backward", "",
                                                                           at::meta::leaky_relu_backward);
  table.add<Tensor(const Tensor&, const Tensor&, std::optional<double>)>("logit_backward", "",
                                                                         at::meta::logit_backward);
  table.add<Tensor(const Tensor&, const Tensor&, int64_t)>("mse_loss", "", at::meta::mse_loss);
  table.add<Tensor(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t, int64_t,
                   const Tensor&)>("nll_loss_backward", "", at::meta::nll_loss_backward);
  table.add<std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t, int64_t)>(
      "nll_loss_forward", "", at::meta::nll_loss_forward);
  table.add<Tensor(const Tensor&, const Tensor&)>("sigmoid_backward", "", at::meta::sigmoid_backward);
  table.add<Tensor(const Tensor&, const Tensor&)>("silu_backward", "", at::meta::silu_backward);
  table.add<Tensor(const Tensor&, const Tensor&, int64_t, double)>("smooth_l1_loss", "", at::meta::smooth_l1_loss);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&, const at::Scalar&)>("softplus_backward", "",
                                                                                        at::meta::softplus_backward);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("softshrink_backward", "",
                                                                     at::meta::softshrink_backward);
  table.add<Tensor(const Tensor&, const Tensor&)>("tanh_backward", "", at::meta::tanh_backward);
  table.add<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("threshold_backward", "",
                                                                     at::meta::threshold_backward);
  table.add("mse_loss_backward", "", mse_loss_backward);
  table.add("embedding_dense_backward", "", embedding_dense_backward);
  table.add("slice_backward", "", slice_backward);
  table.add("select_backward", "", select_backward);
  table.add("native_layer_norm_backward", "", native_layer_norm_backward);
  table.add("_safe_softmax", "", safe_softmax);
  table.add("_scaled_dot_product_flash_attention_for_cpu", "", attention);
  table.add("_scaled_dot_product_flash_attention_for_cpu_backward", "", attention_backward);
}

}  // namespace weft::record
