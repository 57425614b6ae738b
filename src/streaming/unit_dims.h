#pragma once

#include "ir/program.h"

namespace weft::streaming {

/// Turns transposes that only move dims of one element into reshapes, which cost nothing. A chunk of one step has many
/// such transposes.
///
///   %b = transpose %a {perm = [0, 2, 1]} : f32[1,6,1]
///
/// becomes
///
///   %b = reshape %a : f32[1,6,1]
void reshape_unit_dims(ir::Program& program);

}  // namespace weft::streaming
