#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// Draws random numbers at once, by the CPU's kernels, so that a seed gives the same numbers as on the CPU. Operations
/// on these numbers are recorded.
void draw(const Operator& op, torch::jit::Stack& stack);

/// aten::native_dropout, with the numbers that dropout on the CPU draws.
void native_dropout(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
