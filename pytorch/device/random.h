#pragma once

#include "device/operators.h"

namespace weft::device {

/// Random numbers are drawn when they are asked for, by the CPU's kernels, so that a seed gives the numbers that it
/// gives on the CPU; what is made of them is recorded.
void draw(const Operator& op, torch::jit::Stack& stack);

/// aten::native_dropout, by the numbers that dropout on the CPU draws.
void native_dropout(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
