#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Merges two stacks of a scan that have columns in common. If both are concatenations that share parts, one
/// concatenation of all parts is stored instead, and the ops behind the loop read columns of its stack:
///
///     %a = concat %r, %z, %n {dim = 1} : f32[B,48]
///     %b = concat %r, %z, %m {dim = 1} : f32[B,48]
///     yield carry(...) ys(%a, %b)                        // as %as, %bs : f32[T,B,48]
///     %wa = outer %as, %x : f32[48,8]
/// becomes
///     %s = concat %n, %r, %z, %m {dim = 1} : f32[B,64]
///     %b = slice %s 16..64
///     yield carry(...) ys(%s)                            // as %ss : f32[T,B,64]
///     %wa = outer (concat (slice %ss 16..48), (slice %ss 0..16)), %x : f32[48,8]
///
/// The loop itself may read %b, so the columns of %b stay side by side: %b is one slice of %s. The loop must not read
/// %a: only its stack is read, as several ranges of columns (above, %r and %z, then %n). Outer products and sums over
/// rows take such ranges as they are; a product with weights becomes a sum of products of the ranges with the rows of
/// the weights that belong to them. If any other op reads the stack of %a, the two stay apart.
///
/// Stands behind sink, which makes such stacks, and before prepack, which hides the rows of weights in panels.
void merge_stacks(ir::Program& program);

}  // namespace weft::passes
