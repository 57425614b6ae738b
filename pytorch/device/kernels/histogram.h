#pragma once

#include "device/kernels/operators.h"

namespace weft::device {

/// torch.histc, for integers too. The CPU's kernel refuses integers, but kernels of other devices take them, and models
/// that ask for a device's type rely on it.
void histc(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
