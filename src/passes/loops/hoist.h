#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Loop-invariant code motion for scans: moves ops that do not depend on the carries in front of the loop, where they
/// are done for all steps at once:
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
/// Ops that depend on nothing in the region move out as they are. Constants and broadcasts stay beside their readers,
/// where they cost nothing. Of the ops that depend on xs, products, reductions and gathers move out. Elementwise ops
/// follow if the loop then reads no more bytes a step: the addition of a bias follows its projection. Elementwise ops
/// that would add stacks stay in the loop, where fusion makes them free. A minimum cut chooses the stacks that the loop
/// reads.
///
/// Stands after canonicalise, which puts slices and broadcasts where there is least work, and before sink, which then
/// has fewer ops to look at. Inner scans come first: an op that leaves one may leave the next too.
void hoist(ir::Program& program);

}  // namespace weft::passes
