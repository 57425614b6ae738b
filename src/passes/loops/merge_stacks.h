#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Stores once what two stacks of a scan have in common: concatenations of a step's values that share parts become one,
/// and what is behind the loop reads columns of its stack:
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
/// The second keeps its columns side by side, for the loop reads it too; the first, which only its stack is read of, is
/// read in ranges: outer products and sums over rows take them as they are, a product with weights becomes a sum of
/// products with ranges of these. Only where nothing else reads the first one's stack.
///
/// Stands behind sink, which makes such stacks, and before prepack, behind which weights have no rows any more.
void merge_stacks(ir::Program& program);

}  // namespace weft::passes
