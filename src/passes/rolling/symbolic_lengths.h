#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Makes the length of a loop a symbol where an input has it for a size, so that programs that were traced at different
/// lengths become the same:
///
///     program @f(%x: f32[30,B,8], %h: f32[B,8]) {
///       %hT, %ys = scan length 30 carry(%c = %h) xs(%xt = %x) { ... } : f32[B,8], f32[30,B,8]
///       %last = slice %ys {dim = 0, start = 29, limit = 30} : f32[1,B,8]
/// becomes
///     program @f(%x: f32[T,B,8], %h: f32[B,8]) {
///       %hT, %ys = scan length T carry(%c = %h) xs(%xt = %x) { ... } : f32[B,8], f32[T,B,8]
///       %last = slice %ys {dim = 0, start = T-1, limit = T} : f32[1,B,8]
///
/// All sizes that equal the length are taken for it. So are the bounds of slices that are just below the length, and
/// sizes just below it if the types don't fit otherwise. If the symbol has its original value, the result is the
/// program that was given. Nothing says that a function does the same as the result at another length: to know that,
/// trace the function at the other length too, and compare the results.
///
/// A program whose types don't fit with the symbol, because a size that has nothing to do with the loop is the same
/// number, stays as it is; so does one that would multiply by weights of a symbolic size, for which code is slower.
///
/// Runs after roll. It is not part of the compile pipeline.
void symbolic_lengths(ir::Program& program);

/// A symbol that no type of the program has: T, or T and as many underscores as it takes.
ir::Dim fresh_symbol(const ir::Program& program);

}  // namespace weft::passes
