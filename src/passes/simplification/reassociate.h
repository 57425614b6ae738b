#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Regroups the sums and products of a scan's region so that the terms that depend on no carry are computed by
/// themselves, and hoist can move them out of the loop:
///
///     %c = concat %xt, %h {dim = 1} : f32[B,24]
///     %p = matmul %c, %w {transpose_b = true} : f32[B,48]
///     %b = broadcast %bias {dims = [1]} : f32[B,48]
///     %a = add %p, %b : f32[B,48]
/// becomes
///     %px = matmul %xt, (slice %w 0..8) {transpose_b = true} : f32[B,48]
///     %ph = matmul %h, (slice %w 8..24) {transpose_b = true} : f32[B,48]
///     %xb = add %px, %b : f32[B,48]
///     %a = add %xb, %ph : f32[B,48]
///
/// Changes only the order of summation. Stands before hoist, for which it is made.
void reassociate(ir::Program& program);

}  // namespace weft::passes
