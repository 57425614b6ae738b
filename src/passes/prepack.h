#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Lays the weights of every product out once a call, in the panels that the micro-kernels read:
///
///     scan { %g = matmul %h, %w {transpose_b = true} : f32[B,48] }
/// becomes
///     %p = pack %w {groups = 3, ...} : f32[1,16,48]
///     scan { %g = matmul_packed %h, %p {groups = 3, ...} : f32[B,48] }
///
/// A product whose result is only read through equal slices of its columns (gates) interleaves them, so that all gates
/// of one block of units meet in registers. Only f32 and f64 products with constant inner sizes are packed, and inside
/// a scan only those whose weights come from outside it.
///
/// Stands last but for fuse: packing hides the weights' values from every other pass.
void prepack(ir::Program& program);

}  // namespace weft::passes
