#include "device/kernels/half_kernels.h"

#include <algorithm>

namespace weft::device {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

/// The value with `change` applied to each tensor in it.
template <typename Change>
IValue changed(const IValue& value, const Change& change) {
  if (value.isTensor() && value.toTensor().defined()) return change(value.toTensor());
  if (!value.isTensorList()) return value;
  std::vector<Tensor> tensors;
  for (const Tensor& each : value.toTensorVector()) tensors.push_back(each.defined() ? change(each) : each);
  return tensors;
}

}  // namespace

void call_on_cpu(const Operator& op, Stack& stack) {
  const Stack given = stack;
  try {
    return op.handle.callBoxed(&stack);
  } catch (const c10::NotImplementedError& error) {
    // Since 2.15 such errors include an operator's refusals on every device ("Low precision dtypes not supported").
    if (error.msg().find("not implemented for") == std::string::npos) throw;
    std::optional<at::ScalarType> half;
    stack.clear();
    for (const IValue& argument : given) {
      stack.push_back(changed(argument, [&](const Tensor& tensor) {
        if (!at::isReducedFloatingType(tensor.scalar_type())) return tensor;
        half = tensor.scalar_type();
        return tensor.to(at::kFloat);
      }));
    }
    // An operation that writes needs the arguments themselves.
    if (!half || std::ranges::find(op.traits.writes, true) != op.traits.writes.end()) throw;
    op.handle.callBoxed(&stack);
    for (IValue& result : stack) {
      result = changed(
          result, [&](const Tensor& tensor) { return tensor.scalar_type() == at::kFloat ? tensor.to(*half) : tensor; });
    }
  }
}

}  // namespace weft::device
