#pragma once

#include <string_view>

#include "operator/aten.h"

namespace weft::lowering {

/// Calls the operation, as PyTorch prints it, with a tensor in the place of some of its numbers: of no dims, of the
/// dtype that the number has there. False where such a number can only be a constant.
///
/// `are_free`: by argument, which of them are such tensors.
bool call_with_tensors(const c10::OperatorHandle& op, std::string_view name, torch::jit::Stack& stack,
                       const std::vector<bool>& are_free);

}  // namespace weft::lowering
