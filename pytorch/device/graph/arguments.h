#pragma once

#include "device/graph/graph.h"
#include "device/kernels/operators.h"

namespace weft::device {

/// An operation's arguments in the form in which a Form stores them.
struct Given {
  std::vector<c10::IValue> arguments;
  Operands operands;
};

/// Takes the arguments as they are now. Throws if a tensor is on another device where that isn't allowed.
Given take(const Operator& op, at::ArrayRef<c10::IValue> arguments);
/// Takes only the operands, for a call whose form is known.
Operands take_operands(const Operator& op, at::ArrayRef<c10::IValue> arguments);

/// The arguments for the CPU's kernel. Tensors of the device become their tensors on the CPU, which must not be
/// changed.
torch::jit::Stack on_cpu(const Operator& op, at::ArrayRef<c10::IValue> arguments);

/// Whether PyTorch made the tensor of a Python number.
inline bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

/// The present value of a tensor of the CPU, for the device.
ValueRef snapshot(const at::Tensor& tensor);

}  // namespace weft::device
