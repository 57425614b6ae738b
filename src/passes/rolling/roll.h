#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Turns a loop that was unrolled, as tracing a Python loop unrolls it, back into a scan:
///
///     %x0 = slice %x {dim = 0, start = 0, limit = 1} : f32[1,B,8]
///     %r0 = reshape %x0 : f32[B,8]
///     %p0 = matmul %r0, %w : f32[B,8]
///     %a0 = add %p0, %h0 : f32[B,8]
///     %h1 = tanh %a0 : f32[B,8]
///     ... and so on to %h9 = tanh %a8, then
///     %ys = concat %s1, ..., %s9 {dim = 0} : f32[9,B,8]   (of %h1 to %h9, reshaped to f32[1,B,8])
///     return %h9, %ys
/// becomes
///     %hT, %ys = scan length 9 carry(%h = %h0) xs(%xt = %x) {
///       %p = matmul %xt, %w : f32[B,8]
///       %a = add %p, %h : f32[B,8]
///       %n = tanh %a : f32[B,8]
///       yield carry(%n) ys(%n)
///     } : f32[B,8], f32[9,B,8]
///     return %hT, %ys
///
/// A candidate is a repetition in the sequence of ops, without movement and constants (periods.h). It is a loop if the
/// values that its steps read fit one body (step_match.h) and there are at least three steps. A first or last step that
/// differs stays outside. Uses of a single step's value become slices of a stack; a concatenation of the values of all
/// steps becomes the stack. Nested loops become nested scans. All other ops stay as they are.
///
/// A tensor that the steps write a part of each (`y[t] = h`) is such a concatenation, too (separate_writes.h).
///
/// A loop is rolled only if that pays: its body has products, or elementwise ops on slices, or many ops.
///
/// Runs on traced programs, before everything else: differentiation would add the backward loop, unrolled too. It is
/// not part of the compile pipeline.
void roll(ir::Program& program);

}  // namespace weft::passes
