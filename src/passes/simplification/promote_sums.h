#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Computes products and sums of f16 and bf16 in f32, in which they accumulate anyway:
///
///     %y = matmul %x, %w : bf16[B,48]
/// becomes
///     %xf = cast %x : f32[B,16]
///     %wf = cast %w : f32[16,48]
///     %yf = matmul %xf, %wf : f32[B,48]
///     %y = cast %yf : bf16[B,48]
///
/// so that kernels are needed for f32 and f64 only. The result is rounded once, as before. Stands first: hoist takes
/// the casts of weights out of loops, and canonicalise drops a rounding only where what was rounded has the type
/// already.
void promote_sums(ir::Program& program);

}  // namespace weft::passes
