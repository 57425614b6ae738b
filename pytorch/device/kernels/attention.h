#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// Registers scaled_dot_product_attention. Where it is differentiated, it and its derivative are recorded as one
/// operation each, those that PyTorch has for the CPU.
void register_attention();

/// PyTorch's attention for the CPU, which draws random numbers only where it drops weights.
void flash_attention(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
