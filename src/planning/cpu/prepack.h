#pragma once

#include <optional>

#include "ir/program.h"
#include "runtime/kernels/kernels.h"

namespace weft::planning {

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
///     %p = pack %w {interleave = 2, ...} : bf16[3,8,32]
///     %y = matmul_packed %x, %p {interleave = 2, ...} : f32[T,B,48]
///
/// Those that are casts of f16 or i8 become panels of f32 where they are packed (`widen`), so these casts are dead too:
///
///     %p = pack %w {widen = true, ...} : f32[3,16,16]
///     %y = matmul_packed %xf, %p : f32[T,B,48]
///
/// If one factor of a product is a cast of bf16, and the result is only rounded to bf16, the other factor is rounded to
/// bf16 too, as in PyTorch's product of bf16. If the product is an `outer`, its result then is bf16:
///
///     %dwf = outer %g, %xf : f32[48,16]
///     %dw = cast %dwf : bf16[48,16]
/// becomes
///     %gh = cast %g : bf16[T,B,48]
///     %dw = outer %gh, %x : bf16[48,16]
///
/// An `outer` of f32 whose result is only rounded to f16 rounds it itself, and its operands stay f32:
///
///     %dw = outer %g, %xf {round_to_f16 = true} : f16[48,16]
///
/// A sum over the rows of casts of bf16, rounded to bf16, reads the bf16 rows too:
///
///     %s = reduce_sum %xf {dims = [0, 1]} : f32[16]
///     %sh = cast %s : bf16[16]
/// becomes
///     %sh = reduce_sum %x {dims = [0, 1]} : bf16[16]
///
/// An `outer` of two vectors, which is what the gradient of a product by a vector becomes in a loop, is elementwise:
///
///     %d = outer %g, %w : f32[B,16]
/// becomes
///     %gs = broadcast %g {dims = [0]} : f32[B,16]
///     %ws = broadcast %w {dims = [1]} : f32[B,16]
///     %d = mul %gs, %ws : f32[B,16]
///
/// Where the processor multiplies bytes faster than floats (ByteProducts::kFaster), and where the product is one of
/// integers, transposed weights that are casts of i8 are read as they lie:
///
///     %wf = cast %w : f32[48,16]
///     %y = matmul %x, %wf {transpose_b = true} : f32[T,B,48]
/// becomes
///     %y = matmul_rows %x, %w {groups = 1, width = 48} : f32[T,B,48]
///
/// Stands last but for dce: packing hides the weights' values from every other pass.
void prepack(ir::Program& program, runtime::ByteProducts bytes);

/// Panels as the micro-kernels read them.
struct Panels {
  int64_t columns;  ///< of the weights
  int64_t groups;   ///< gates, equal ranges of these columns, side by side in a panel
  int64_t unroll;   ///< units (base/target.h) of each gate in a panel
  int64_t lanes;    ///< columns of a unit
  /// bf16 weights lie in pairs: the rows 2i and 2i + 1 interleaved, as instructions on pairs read them. i8 weights are
  /// not in panels but in rows, and a panel stands for some rows of each gate.
  DType weights;
};

/// The panels of a pack, matmul_packed or matmul_rows; none if the micro-kernels can't read them. They can read all
/// panels that prepack makes. A program given as text may ask for others, which only the interpreter reads.
std::optional<Panels> kernel_panels(const ir::Program& program, const ir::Op& op);

}  // namespace weft::planning
