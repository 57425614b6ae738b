#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Moves out of a scan what does not depend on the carries, and does it for all steps at once:
///
///     %hT = scan length T carry(%h = %h0) xs(%xt = %x) {
///       %p = matmul %xt, %w : f32[B,16]
///       %a = add %p, %h : f32[B,16]
///       %n = tanh %a : f32[B,16]
///       yield carry(%n) ys()
///     } : f32[B,16]
/// becomes
///     %p = matmul %x, %w : f32[T,B,16]
///     %hT = scan length T carry(%h = %h0) xs(%pt = %p) { %a = add %pt, %h ... }
///
/// What depends on nothing in the region moves out as it is; constants and broadcasts stay beside their readers, where
/// they cost nothing. Of what depends on xs, products, reductions and gathers move out; elementwise work follows when
/// the loop then reads no more bytes a step, so that a bias rides on the projection, while work that would only make
/// more stacks stays in the loop, where it fuses for free. Which stacks the loop reads is a minimum cut.
///
/// Stands after canonicalise, which has slices and broadcasts where work is least, and before sink, which then has less
/// to look at. Inner scans come first: what leaves one may leave the next.
void hoist(ir::Program& program);

}  // namespace weft::passes
