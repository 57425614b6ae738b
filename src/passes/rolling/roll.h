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
/// A loop is a repetition in the row of ops (periods.h), movement and constants left out; what its steps read decides
/// whether it is one (step_match.h): at least three steps that do the same. Steps that differ, as the first and the
/// last may, stay outside. What is read of single steps becomes slices of a stack, a concatenation of all steps' values
/// is the stack. Loops in loops become scans in scans. What has no loop stays as it is.
///
/// Rolled is what makes the program shorter and a loop worth it: a body of products, or of elementwise work on slices.
///
/// Runs on what was traced, before anything else and before differentiation, which would make another loop of each
/// step; it is no part of every compilation.
void roll(ir::Program& program);

}  // namespace weft::passes
