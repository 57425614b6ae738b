#pragma once

#include "device/operators.h"

namespace weft::device {

/// torch.histc, for integers too. Kernels of other devices take integers, and models that ask a device for its type
/// rely on that; the CPU's kernel does not.
void histc(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
