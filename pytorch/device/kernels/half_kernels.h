#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// Runs an operation on CPU tensors. Some of PyTorch's CPU kernels lack half precisions that other devices have
/// (pooling in 3D). Such operations run in f32, and their results are rounded.
void call_on_cpu(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
