#pragma once

#include "ir/program.h"

namespace weft::packages {

/// Gives elementwise ops other shapes: dims of one element at the end of a shape, as in [1, C, 1] of a convolution's
/// step, come to the front, since code is made for vectors along the last dim. Sizes must be numbers, and the program
/// must have no regions.
void put_unit_dims_in_front(ir::Program& program);

}  // namespace weft::packages
