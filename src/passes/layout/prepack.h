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
/// of one block of units meet in registers. Only f32 and f64 products with constant inner sizes are packed. In a scan
/// the weights must come from outside of it: from the program's body or, in a nested scan, from a step of the outer
/// one, which then packs them.
///
/// Weights that are casts of bf16 are packed as bf16, two rows of the weights side by side. The casts are dead then:
///
///     %wf = cast %w : f32[48,16]
///     %xf = cast %x : f32[T,B,16]
///     %y = matmul %xf, %wf {transpose_b = true} : f32[T,B,48]
/// becomes
///     %p = pack %w {pairs = true, ...} : bf16[3,8,32]
///     %y = matmul_packed %x, %p {pairs = true, ...} : f32[T,B,48]
///
/// Belongs to the CPU's target. Stands last but for dce: packing hides the weights' values from every other pass.
void prepack(ir::Program& program);

/// True iff the micro-kernels take the panels of this pack or matmul_packed, as they do all that this pass makes. The
/// text of a program may ask for other panels, on which the interpreter works.
bool has_kernel_layout(const ir::Program& program, const ir::Op& op);

}  // namespace weft::passes
