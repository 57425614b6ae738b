#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Moves behind a scan what no carry depends on, and does it for all steps at once. Products whose result is only a y:
///
///     %hT, %ys = scan length T carry(%h = %h0) xs() {
///       %n = ... : f32[B,16]
///       %y = matmul %n, %w : f32[B,4]
///       yield carry(%n) ys(%y)
///     } : f32[B,16], f32[T,B,4]
/// becomes
///     %hT, %ns = scan ... yield carry(%n) ys(%n) } : f32[B,16], f32[T,B,16]
///     %ys = matmul %ns, %w : f32[T,B,4]
///
/// and carries that only sum up (in the scan that vjp makes, the gradients of captured weights):
///
///     %dw2 = add %dw, (outer %dg, %ht)      ->     one `outer` of the stacks of %dg and %ht behind the loop
///     %db2 = add %db, (reduce_sum %dg {dims = [0]})  ->  one reduce_sum of the stack of %dg
///
/// Stacks are indexed by the step's number whatever the direction, so nothing changes for a reverse scan. Only the
/// order of summation changes. A sum of elementwise work whose stack is not there anyway stays a carry: a stack of it
/// would cost more memory than the sum.
///
/// Stands after hoist (and canonicalise), so that what it stacks are true results of the loop.
void sink(ir::Program& program);

}  // namespace weft::passes
