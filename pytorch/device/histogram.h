#pragma once

#include "device/operators.h"

namespace weft::device {

/// torch.histc, of whole numbers too: kernels of other devices take these, the CPU's does not, and models that ask a
/// device for its type rely on it.
void histc(const Operator& op, torch::jit::Stack& stack);

}  // namespace weft::device
