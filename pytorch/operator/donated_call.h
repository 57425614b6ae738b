#pragma once

#include "operator/aten.h"

namespace weft::torch_operator {

/// User's error unless the inputs that are donated may be written in place by a function of all inputs: each is
/// contiguous and shares memory with no other input. `what` is who says so.
void check_donated(const char* what, at::TensorList inputs, const std::vector<bool>& is_donated);

}  // namespace weft::torch_operator
