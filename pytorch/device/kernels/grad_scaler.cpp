#include "device/kernels/grad_scaler.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>

#include "device/call.h"
#include "device/graph/storage.h"

namespace weft::device {
namespace {

using at::Tensor;

/// Checks a number, with PyTorch's messages.
void check_number(const Tensor& tensor, at::ScalarType type, const char* name, const char* type_name) {
  TORCH_CHECK(is_on_device(tensor), name, " must be a tensor of device weft, but is on ", tensor.device());
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == type, name, " must be ", type_name, " tensor.");
}

/// The type in which PyTorch's kernels compute.
at::ScalarType wide(at::ScalarType type) { return at::isReducedFloatingType(type) ? at::kFloat : type; }

}  // namespace

void check_and_unscale(const Operator& op, torch::jit::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const std::vector<Tensor> gradients = arguments[0].toTensorVector();
  const Tensor found_inf = arguments[1].toTensor(), inv_scale = arguments[2].toTensor();
  if (!gradients.empty()) {
    check_number(inv_scale, at::kFloat, "inv_scale", "a float");
    check_number(found_inf, at::kFloat, "found_inf", "a float");
  }
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const Tensor scale = inv_scale.reshape({});
  Tensor all_finite;
  for (const Tensor& gradient : gradients) {
    TORCH_CHECK(is_on_device(gradient), "scaled_grads must be tensors of device weft, but one is on ",
                gradient.device());
    const at::ScalarType type = wide(gradient.scalar_type());
    const Tensor value = gradient.to(type), is_finite = at::isfinite(value).all();
    all_finite = all_finite.defined() ? all_finite.logical_and(is_finite) : is_finite;
    Tensor(gradient).copy_(value.mul(scale.to(type)));
  }
  if (all_finite.defined()) {
    const Tensor one = at::scalar_tensor(1, found_inf.options());
    Tensor(found_inf).copy_(at::where(all_finite, found_inf, one));
  }
  put(stack, op.arguments(), {});
}

void update_scale(const Operator& op, torch::jit::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const Tensor self = arguments[0].toTensor(), tracker = arguments[1].toTensor(), found_inf = arguments[2].toTensor();
  const double growth_factor = arguments[3].toDouble(), backoff_factor = arguments[4].toDouble();
  const int64_t growth_interval = arguments[5].toInt();
  check_number(self, at::kFloat, "current_scale", "a float");
  check_number(tracker, at::kInt, "growth_tracker", "an int");
  check_number(found_inf, at::kFloat, "found_inf", "a float");
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const Tensor scale = self.reshape({}), exact = scale.to(at::kDouble);  // PyTorch multiplies by the factors as f64
  const Tensor is_bad = found_inf.reshape({}).ne(0), steps = tracker.reshape({}).add(1);
  const Tensor grows = steps.eq(growth_interval);
  const Tensor backed_off = exact.mul(backoff_factor).to(at::kFloat), grown = exact.mul(growth_factor).to(at::kFloat);
  const Tensor larger = at::where(grows.logical_and(at::isfinite(grown)), grown, scale);
  const Tensor zero = at::scalar_tensor(0, tracker.options());
  Tensor(self).copy_(at::where(is_bad, backed_off, larger));
  Tensor(tracker).copy_(at::where(is_bad.logical_or(grows), zero, steps));
  put(stack, op.arguments(), {self});
}

}  // namespace weft::device
