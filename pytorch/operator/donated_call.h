#pragma once

#include "operator/aten.h"

namespace weft::torch_operator {

/// User's error unless a function of all inputs may write to the donated ones in place: each donated input is
/// contiguous and shares memory with no other input. `what` names the function in errors.
void check_donated(const char* what, at::TensorList inputs, const std::vector<bool>& is_donated);

}  // namespace weft::torch_operator
