#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Scalar replacement of carries: a carry that every step reads in slices and yields as a concatenation of the same
/// parts becomes one carry a part.
///
///     %s = scan length T carry(%a = %s0) xs(%xt = %x) {
///       %h = slice %a {dim = 1, start = 0, limit = 8} : f32[B,8]
///       %c = slice %a {dim = 1, start = 8, limit = 16} : f32[B,8]
///       ...
///       %next = concat %h2, %c2 {dim = 1} : f32[B,16]
///       yield carry(%next) ys()
///     }
/// becomes
///     %h0 = slice %s0 {dim = 1, start = 0, limit = 8}, %c0 = slice %s0 {dim = 1, start = 8, limit = 16}
///     %hT, %cT = scan length T carry(%h = %h0, %c = %c0) xs(%xt = %x) { ... yield carry(%h2, %c2) ys() }
///     %s = concat %hT, %cT {dim = 1}
///
/// No step copies its state then, and a product of one part reads it as it lies. Stands before the passes that move ops
/// out of loops, which see what depends on which part. Ragged scans stay as they are.
void split_carries(ir::Program& program);

}  // namespace weft::passes
