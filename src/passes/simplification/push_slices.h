#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Moves slices before elementwise ops whose result is only read through slices. Gates become slices of a product, and
/// all ops behind it run on `f32[B,16]`:
///
///     %g = add %p, %b : f32[B,48]
///     %r = slice %g {dim = 1, start = 0, limit = 16} : f32[B,16]
/// becomes
///     %pr = slice %p {dim = 1, start = 0, limit = 16} : f32[B,16]
///     %br = slice %b {dim = 1, start = 0, limit = 16} : f32[B,16]
///     %r = add %pr, %br : f32[B,16]
///
/// No element is computed twice: slices that overlap are left alone. Stands after hoist, which would otherwise take a
/// projection's gates out of the loop as three stacks instead of one, and before canonicalise, which tidies the slices.
void push_slices(ir::Program& program);

}  // namespace weft::passes
