#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace weft::torch_operator {

/// Floating point operations of a program's products for inputs of these sizes, counted as torch.utils.flop_counter
/// does: two for each multiplication and its addition, elementwise work left out. User's error when the sizes don't
/// fit.
int64_t flops(const ir::Program& program, const std::vector<std::vector<int64_t>>& sizes);

}  // namespace weft::torch_operator
