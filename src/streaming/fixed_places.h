#pragma once

#include "streaming/lengths.h"

namespace weft::streaming {

/// Steps that are picked by numbers known from the program become slices. What a loop's step reads of a sequence, in
/// the same way at each step, is moved in front of the loop.
///
///   %i = constant {value = 2} : i64[1]
///   %y = gather %x, %i : f32[1,8]
///
/// of %x f32[T,8] becomes
///
///   %y = slice %x {dim = 0, start = 2, limit = 3} : f32[1,8]
void fixed_places(ir::Program& program, const Lengths& lengths);

}  // namespace weft::streaming
