#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// Registers scaled_dot_product_attention. Where gradients are wanted, forward and backward are recorded as one
/// operation each: PyTorch's flash attention for the CPU.
void register_attention();

/// PyTorch's attention for the CPU, which draws random numbers only where it drops weights.
void flash_attention(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
