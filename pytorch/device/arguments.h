#pragma once

#include "device/graph.h"
#include "device/operators.h"

namespace weft::device {

/// An operation's arguments as a Node has them.
struct Given {
  std::vector<c10::IValue> arguments;
  c10::SmallVector<ValueRef, 3> operands;
};

/// Takes what the arguments are now. Throws if a tensor is on another device and may not be.
Given take(const Operator& op, at::ArrayRef<c10::IValue> arguments);

/// The arguments as the CPU's kernel takes them: tensors of the device as theirs on the CPU, which must not be changed.
torch::jit::Stack on_cpu(const Operator& op, at::ArrayRef<c10::IValue> arguments);

/// Whether PyTorch made it of a Python number.
inline bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

/// A tensor of the CPU, as it is now, for the device.
ValueRef snapshot(const at::Tensor& tensor);

}  // namespace weft::device
