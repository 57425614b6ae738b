#pragma once

#include <string_view>

#include "operator/aten.h"

namespace weft::programs {

/// Calls an operation (named as PyTorch prints it) with tensors in place of some of its numbers. Each is a scalar
/// tensor of the dtype that the number has in the operation. False if one of these numbers can only be a constant.
///
/// `are_free`: for each argument, whether it is such a tensor.
bool call_with_tensors(const c10::OperatorHandle& op, std::string_view name, torch::jit::Stack& stack,
                       const std::vector<bool>& are_free);

}  // namespace weft::programs
