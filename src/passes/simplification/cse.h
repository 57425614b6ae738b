#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Makes one of ops that compute the same: same op, operands, attributes and type.
///
///     %a = tanh %x : f32[B,8]
///     %b = tanh %x : f32[B,8]
///     %c = mul %a, %b : f32[B,8]      ->      %c = mul %a, %a : f32[B,8]
///
/// A region sees what was computed before it outside, never the other way round. A scan that takes one stack twice or
/// yields one value twice does so once. Scans themselves are not compared. Stands after canonicalise, which makes alike
/// what is the same, and before dce, which clears up.
void cse(ir::Program& program);

}  // namespace weft::passes
