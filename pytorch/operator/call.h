#pragma once

#include "operator/aten.h"

namespace weft::torch_operator {

/// weft::call through PyTorch's dispatcher: differentiable, traceable. Any thread, with or without the GIL.
std::vector<at::Tensor> call(std::string_view program, at::TensorList inputs);

/// How often programs ran in this process.
int64_t calls_so_far();

}  // namespace weft::torch_operator
