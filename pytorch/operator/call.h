#pragma once

#include "operator/aten.h"

namespace weft::torch_operator {

/// weft::call through PyTorch's dispatcher: differentiable, traceable. Any thread, with or without the GIL.
std::vector<at::Tensor> call(std::string_view program, at::TensorList inputs);

}  // namespace weft::torch_operator
