#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Code sinking for scans: moves ops that no carry depends on behind the loop, where they are done for all steps at
/// once. It moves products whose result is only a y:
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
/// Stacks are indexed by the step's number whatever the direction, so a reverse scan is treated alike. Only the order
/// of summation changes. A sum of elementwise values stays a carry unless their stack is there anyway: a stack of its
/// own would cost more memory than the sum.
///
/// Stands after hoist (and canonicalise), so that it stacks only values that the loop itself must compute.
void sink(ir::Program& program);

}  // namespace weft::passes
