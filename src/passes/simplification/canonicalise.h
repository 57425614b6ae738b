#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Brings a program into canonical form by local rewrites. They preserve every result but for rounding and the sign of
/// a zero gradient:
///
///     %t = transpose %w {perm = [1, 0]} : f32[16,8]
///     %p = matmul %x, %t : f32[B,8]
///     %b = broadcast %c {dims = [1]} : f32[B,8]
///     %e = tanh %b : f32[B,8]
/// becomes
///     %p = matmul %x, %w {transpose_b = true} : f32[B,8]
///     %d = tanh %c : f32[8]
///     %e = broadcast %d {dims = [1]} : f32[B,8]
///
/// Two movements in a row become one or none. Constants are folded where the result is exact. A sum of pads that lie
/// side by side, which vjp makes of several slices, becomes a concatenation. A scan loses carries that never change, ys
/// that are xs, and xs that repeat one value.
///
/// Repeated until nothing changes, at most a few times; each sweep is linear in the program. Stands first, and again
/// after passes that make new ops, since the other passes look for canonical forms.
void canonicalise(ir::Program& program);

}  // namespace weft::passes
