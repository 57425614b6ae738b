#pragma once

#include "device/operators.h"

namespace weft::device {

/// Runs an operation on CPU tensors. PyTorch's CPU kernels lack half precisions here and there where those of other
/// devices have them (pooling in 3D): such operations run in f32, and their results are rounded.
void call_on_cpu(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
