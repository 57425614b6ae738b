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
/// a scan only those whose weights come from outside it: from the program or, in a scan in a scan, from a step of the
/// outer one, which then packs them.
///
/// Weights that are casts of bf16 are packed as bf16, in pairs of steps, and what is left of the product's casts is
/// dead:
///
///     %wf = cast %w : f32[48,16]
///     %xf = cast %x : f32[T,B,16]
///     %y = matmul %xf, %wf {transpose_b = true} : f32[T,B,48]
/// becomes
///     %p = pack %w {pairs = true, ...} : bf16[3,8,32]
///     %y = matmul_packed %x, %p {pairs = true, ...} : f32[T,B,48]
///
/// Stands last but for dce and fuse: packing hides the weights' values from every other pass.
void prepack(ir::Program& program);

/// True iff the panels of a pack or matmul_packed are such as this pass makes, which the micro-kernels take. A
/// program's text may ask for any others: these the interpreter makes and reads.
bool has_kernel_layout(const ir::Program& program, const ir::Op& op);

}  // namespace weft::passes
