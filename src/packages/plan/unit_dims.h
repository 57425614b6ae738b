#pragma once

#include "ir/program.h"

namespace weft::packages {

/// Elementwise ops over shapes that end in dims of one element, as [1, C, 1] of a convolution's step, in shapes with
/// these dims in front: code is made for vectors along the last dim. Sizes must be numbers, and regions gone.
void put_unit_dims_in_front(ir::Program& program);

}  // namespace weft::packages
