#include "device/kernels/histogram.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "device/call.h"

namespace weft::device {
namespace {

using at::Tensor;

/// Counts of int64 `values`, flat, between `low` and `high`, both included, in `bins` of the same width. As CUDA's
/// kernel divides: in whole numbers.
Tensor counts(const Tensor& values, const Tensor& low, const Tensor& high, int64_t bins) {
  const Tensor is_inside = values.ge(low).logical_and(values.le(high));
  const Tensor bin = ((values - low) * bins).div(high - low, "floor").clamp(0, bins - 1);
  return at::zeros({bins}, values.options()).scatter_add(0, bin, is_inside.to(at::kLong));
}

}  // namespace

void histc(const Operator& op, torch::jit::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const Tensor self = arguments[0].toTensor();
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) return record_or_run_new(op, stack);
  const int64_t bins = arguments[1].toInt();
  const auto first = arguments[2].toScalar().to<int64_t>(), last = arguments[3].toScalar().to<int64_t>();
  TORCH_CHECK(bins > 0, "bins must be > 0");
  TORCH_CHECK(first <= last, "max must be larger than min");
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const Tensor values = self.to(at::kLong).flatten();
  Tensor low = at::scalar_tensor(first, values.options()), high = at::scalar_tensor(last, values.options());
  if (first == last && values.numel() > 0) std::tie(low, high) = std::pair(values.min(), values.max());
  const Tensor is_one = low.eq(high).to(at::kLong);
  put(stack, op.arguments(), {counts(values, low - is_one, high + is_one, bins).to(self.scalar_type())});
}

}  // namespace weft::device
