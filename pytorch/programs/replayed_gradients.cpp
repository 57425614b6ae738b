// How a replay gives each operation's tensors the gradients that they had in the record.

#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "programs/imported_run.h"
#include "programs/stop_gradient.h"

namespace weft::programs {

using c10::OperatorHandle;
using record::GradientUse;
using record::Operation;

namespace {

std::atomic<GradientFault> injected{GradientFault::kNone};

/// Whether PyTorch's derivative of the operation by its input covers this argument as a function of the input. Autograd
/// then doesn't compute the argument's own derivative (derivatives.yaml: not_implemented beside a formula). If the
/// operation is decomposed, the derivative has to go through the argument.
bool is_hidden(std::string_view op, std::string_view argument) {
  if (op == "aten.native_layer_norm_backward.default") return argument == "mean" || argument == "rstd";
  if (op == "aten.native_batch_norm_backward.default") return argument == "save_mean" || argument == "save_invstd";
  return op == "aten.batch_norm_backward.default" && (argument == "save_mean" || argument == "save_var");
}

}  // namespace

void inject(GradientFault fault) { injected = fault; }

ImportedRun::Role ImportedRun::role_of(const OperatorHandle& op, size_t argument) {
  const c10::Argument& parameter = op.schema().arguments()[argument];
  const std::string name = printed_name(op.operator_name());
  if (is_hidden(name, parameter.name())) return Role::kHidden;
  if (parameter.alias_info() == nullptr) return Role::kRead;
  if (!parameter.alias_info()->isWrite()) return Role::kShown;
  constexpr std::array kWhole = {"aten.copy_.default", "aten.zero_.default", "aten.fill_.Scalar", "aten.fill_.Tensor"};
  return std::ranges::find(kWhole, name) == kWhole.end() ? Role::kChanged : Role::kOverwritten;
}

/// The value for the next tensor that the replayed operation reads.
at::Tensor ImportedRun::read(int64_t id) {
  if (at::GradMode::is_enabled()) return with_gradient(id, source_.uses().at(next_use_++));
  is_varied_ |= id < 0 || varied_.contains(source_.storage(id));
  return value(id);
}

/// The value with a gradient that goes where the recorded tensor's gradient went.
at::Tensor ImportedRun::with_gradient(int64_t id, const GradientUse& use) {
  at::Tensor tensor = value(id);
  if (use.requires_gradient()) is_varied_ = true;
  if (id < 0) return tensor;  // whether it requires a gradient is its owner's decision
  if (!use.requires_gradient()) return injected == GradientFault::kStops ? tensor : without_gradient(id, tensor);
  const auto* node = source_.graph().node(use.node);
  if (source_.graph().is_own_leaf(node)) return leaf(id, use);
  if (!tensor.requires_grad()) {
    const auto* error = record::as_error(node);
    if (error == nullptr) match_.fail(*node, operation_);
    return refusing(id, use, *error);
  }
  if (const auto* known = match_.find(use)) {
    if (!(torch::autograd::impl::gradient_edge(tensor) == *known)) match_.fail(*node, operation_);
    return tensor;
  }
  const auto behind = torch::autograd::impl::gradient_edge(tensor);
  const auto hook = std::ranges::find(source_.hooks(), use, &record::Hook::of);
  if (hook != source_.hooks().end() && injected != GradientFault::kHooks) {
    tensor = with_hook(id, *hook);
    keep(id, tensor);
  }
  match_.bind(use, torch::autograd::impl::gradient_edge(tensor), behind, operation_);
  return tensor;
}

/// The value, for an operation that read it without a gradient. In autograd the value itself may have no gradient
/// although the operations that replace its maker here have derivatives.
at::Tensor ImportedRun::without_gradient(int64_t id, const at::Tensor& tensor) {
  if (!record::has_gradients(tensor.scalar_type()) || !varied_.contains(source_.storage(id))) return tensor;
  if (role_ == Role::kRead) return stop_gradient(tensor);
  is_varied_ = true;
  if (role_ == Role::kHidden) return tensor;
  const at::Tensor same = tensor.requires_grad() ? tensor.detach() : tensor;
  if (role_ == Role::kChanged) {
    const at::AutoGradMode no_grad(false);
    same.copy_(stop_gradient(same));
  }
  return same;
}

/// The value, with an error in place of its derivative. Gradients of the value itself end there.
at::Tensor ImportedRun::refusing(int64_t id, const GradientUse& use, const torch::autograd::Error& error) {
  at::Tensor& refusing = leaves_[use];
  if (refusing.defined()) return refusing;
  if (source_.is_changed_from(operation_, id))
    throw UnprovenGradientError("a value without a derivative that is changed in place later", operation_);
  refusing = wrapped(flat_.refusing(unwrapped(value(id)), error.msg));
  const auto edge = torch::autograd::impl::gradient_edge(refusing);
  match_.bind(use, edge, edge, operation_);
  return refusing;
}

/// A leaf that the function made itself, with the value's memory.
at::Tensor ImportedRun::leaf(int64_t id, const GradientUse& use) {
  at::Tensor& leaf = leaves_[use];
  if (leaf.defined()) return leaf;
  if (source_.is_changed_from(operation_, id))
    throw UnprovenGradientError("a leaf that is changed in place later", operation_);
  leaf = stop_gradient(value(id)).requires_grad_();
  return leaf;
}

/// The value, with the hook's effect as its derivative.
at::Tensor ImportedRun::with_hook(int64_t id, const record::Hook& hook) {
  if (source_.is_changed_from(operation_, id))
    throw UnprovenGradientError("a hook on the gradient of a value that is changed in place later", operation_);
  std::vector<at::Tensor> inputs{value(id)};
  for (int64_t read : hook.inputs) {
    if (read >= static_cast<int64_t>(values_.size()) || (read >= 0 && !values_[static_cast<size_t>(read)].defined()))
      throw UnprovenGradientError("a hook that reads what is computed later", operation_);
    inputs.push_back(value(read));
  }
  const std::vector<at::Tensor> values{unwrapped(inputs[0])};
  const at::Tensor result = derived(inputs, values, derivative(hook.payload, inputs, values)->text())[0];
  Operation& operation = flat_.last_operation();
  operation.is_hook = true;
  operation.derivable = hook.derivable;
  return result;
}

}  // namespace weft::programs
