#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Common subexpression elimination: ops with the same operands, attributes and type become one op.
///
///     %a = tanh %x : f32[B,8]
///     %b = tanh %x : f32[B,8]
///     %c = mul %a, %b : f32[B,8]      ->      %c = mul %a, %a : f32[B,8]
///
/// An op in a region may be replaced by an earlier op outside it, never the other way round. A scan takes each stack
/// once and yields each value once. Scans themselves are not compared. Stands after canonicalise, which gives equal ops
/// equal forms, and before dce, which removes the unread ones.
void cse(ir::Program& program);

}  // namespace weft::passes
