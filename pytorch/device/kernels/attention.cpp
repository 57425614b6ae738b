#include "device/kernels/attention.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "device/call.h"
#include "device/graph/storage.h"
#include "device/kernels/libraries.h"
#include "record/recording.h"

namespace weft::device {
namespace {

using c10::IValue;
using torch::jit::Stack;

/// The arguments of scaled_dot_product_attention in the schema's order.
enum AttentionArgument : size_t {
  kAttentionQuery,
  kAttentionKey,
  kAttentionValue,
  kAttentionMask,
  kAttentionDropout,
  kAttentionCausal,
  kAttentionScale,
  kAttentionGqa,
  kAttentionArguments
};

bool has_tangent(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

/// Whether PyTorch's attention for the CPU takes these tensors: of four dims that agree, but for the lengths of
/// sequences and, with `shares_heads`, the number of heads.
bool are_plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool shares_heads) {
  for (const at::Tensor* each : {&q, &k, &v})
    if (!has_values(*each) || each->dim() != 4 || each->numel() == 0 || has_tangent(*each)) return false;
  const bool have_heads = shares_heads ? q.size(1) % k.size(1) == 0 : q.size(1) == k.size(1);
  return q.is_floating_point() && q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type() &&
         q.size(0) == k.size(0) && q.size(0) == v.size(0) && have_heads && k.size(1) == v.size(1) &&
         k.size(2) == v.size(2) && q.size(3) == k.size(3) && q.size(3) == v.size(3);
}

bool is_plain_mask(const IValue& mask, const at::Tensor& q) {
  if (mask.isNone() || !mask.toTensor().defined()) return true;
  const at::Tensor& given = mask.toTensor();
  if (!has_values(given) || given.requires_grad() || has_tangent(given)) return false;
  if (given.dim() != 2 && given.dim() != 4) return false;
  return given.scalar_type() == at::kBool || given.scalar_type() == q.scalar_type();
}

/// Whether the call and its derivative can be one operation each.
bool can_be_whole(at::ArrayRef<IValue> arguments) {
  const at::Tensor &q = arguments[kAttentionQuery].toTensor(), &k = arguments[kAttentionKey].toTensor(),
                   &v = arguments[kAttentionValue].toTensor();
  if (record::Recording::current() != nullptr || !at::GradMode::is_enabled()) return false;
  if (!at::globalContext().userEnabledFlashSDP() || arguments[kAttentionDropout].toDouble() != 0) return false;
  if (arguments[kAttentionCausal].toBool() && !arguments[kAttentionMask].isNone()) return false;
  if (!are_plain(q, k, v, arguments[kAttentionGqa].toBool()) || !is_plain_mask(arguments[kAttentionMask], q))
    return false;
  return q.requires_grad() || k.requires_grad() || v.requires_grad();
}

/// A mask that is added to the scores.
std::optional<at::Tensor> added(const IValue& mask, const at::Tensor& q) {
  if (mask.isNone() || !mask.toTensor().defined()) return std::nullopt;
  const at::Tensor& given = mask.toTensor();
  if (given.scalar_type() != at::kBool) return given;
  const at::Tensor zeros = at::zeros_like(given, q.options());
  return zeros.masked_fill(given.logical_not(), -std::numeric_limits<double>::infinity());
}

void attention(const c10::OperatorHandle& op, Stack* stack) {
  const auto arguments = torch::jit::last(*stack, kAttentionArguments);
  if (!can_be_whole(arguments)) return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  const at::Tensor& q = arguments[kAttentionQuery].toTensor();
  at::Tensor result = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      q, arguments[kAttentionKey].toTensor(), arguments[kAttentionValue].toTensor(), /*dropout_p=*/0,
      arguments[kAttentionCausal].toBool(), added(arguments[kAttentionMask], q),
      arguments[kAttentionScale].toOptional<double>()));
  put_one(*stack, kAttentionArguments, std::move(result));
}

}  // namespace

void flash_attention(const Operator& op, Stack& stack) {
  const auto dropout = static_cast<size_t>(*op.schema().argumentIndexWithName("dropout_p"));
  if (torch::jit::last(stack, op.arguments())[dropout].toDouble() != 0) return run_now(op, stack);
  record_or_run_new(op, stack);
}

void register_attention() {
  kept_library(c10::DispatchKey::AutogradPrivateUse1)
      .impl("scaled_dot_product_attention", torch::CppFunction::makeFromBoxedFunction<&attention>());
}

}  // namespace weft::device
