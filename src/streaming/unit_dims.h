#pragma once

#include "ir/program.h"

namespace weft::streaming {

/// Transposes that move dims of one element only become reshapes, which cost nothing: a chunk of one step has many.
///
///   %b = transpose %a {perm = [0, 2, 1]} : f32[1,6,1]
///
/// becomes
///
///   %b = reshape %a : f32[1,6,1]
void reshape_unit_dims(ir::Program& program);

}  // namespace weft::streaming
