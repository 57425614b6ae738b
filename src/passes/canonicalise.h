#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Puts a program into its simplest form, by local rules that change no result but for rounding and the sign of a zero
/// gradient. Above all, elementwise work runs on the slices that are read of it, so that gates are slices of a product:
///
///     %g = add %p, %b : f32[B,48]
///     %r = slice %g {dim = 1, start = 0, limit = 16}
/// becomes
///     %pr = slice %p {dim = 1, start = 0, limit = 16} : f32[B,16]
///     %br = slice %b {dim = 1, start = 0, limit = 16} : f32[B,16]
///     %r = add %pr, %br : f32[B,16]
///
/// (where slices are all that is read of the sum). Movement of movement becomes one or none; broadcasts come after elementwise
/// work; constants are folded where the result is exact; a sum of pads that lie side by side is a concatenation (what vjp makes of
/// several slices); a product with a transposed operand says so by its flag; a scan loses carries that never change, ys that
/// are xs, and xs that repeat one value.
///
/// Repeated until nothing changes, at most a few times: each sweep is linear in the program. Stands first, and again after
/// whatever makes new ops: the other passes look for what it leaves.
void canonicalise(ir::Program& program);

}  // namespace weft::passes
