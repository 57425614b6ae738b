#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Groups the ops of a block into stages, each one loop nest of machine code, by an attribute `stage` (numbered in
/// order of execution, per block):
///
///     %g = matmul_packed %h, %p {groups = 3, ..., stage = 0} : f32[B,48]
///     %a = slice %g {dim = 1, start = 0, limit = 16} : f32[B,16]        // a view: read in place, in no stage
///     %r = sigmoid %a {stage = 0} : f32[B,16]                          // on the product's registers
///
/// Ops share a stage when they share a domain (the shape they run over) and read each other only at the element at
/// hand; a product's result may also be read through the slices that its panels interleave. What reads other elements
/// (the left side of a product, a reduction's result) starts a later stage.
/// A stage is bounded, since LLVM's time grows faster than the size of a loop nest. An op for which there is no room
/// starts a later stage too, and reads the values of earlier stages through memory.
///
/// A scan whose region is all machine code is one stage, one function with the loop in it; when its rows are
/// independent it gets `batched`. Another scan (of a gather, of a scan, of hundreds of stages) gets an attribute `loop`
/// with the reason: its region is divided into stages as the body is, which run step by step; so are the regions of
/// cond and while. A ragged scan that is not all machine code gets `fallback`, and runs in the interpreter.
///
/// Copies are inserted where a value needs memory of its own (a view that is returned, a broadcast that a product
/// reads). A concatenation of columns of one value that only outer products and sums over rows read is a view too,
/// marked `ranges`. Integer divisions by a constant, which cannot fail, are marked `nonzero`. Stands last: its
/// attributes describe the program as it will be generated. Such attributes in the text of a program are dropped first.
void fuse(ir::Program& program);

/// Takes out the annotations that fuse writes.
void drop_annotations(ir::Block& block);

/// True iff the op only renames elements of its operand, so that a reader addresses the operand instead: constant,
/// broadcast, slice. (reshape is the same memory under another shape.)
bool is_view(ir::OpCode code);

/// True iff the op sums or takes the maximum over dims.
bool is_reduction(const ir::Op& op);

/// True iff machine code computes elements of this type.
bool is_native(DType dtype);

/// The shape an op runs over: the shape of its result, or of its operand for a reduction, with a last dim of 1 added to
/// [B] in a batched region, [1] for a scalar, and the width of one group for a product or concatenation.
ir::Shape domain_of(const ir::Program& program, const ir::Op& op, bool batched);

/// How an op is lowered.
enum class Lowering {
  kView,     ///< no code of its own
  kAlias,    ///< reshape
  kFused,    ///< part of a stage with a domain
  kRowCopy,  ///< a stage of its own: rows copied beside others (concat of unequal parts) or zeros (pad)
  kScan,     ///< a stage of its own; with the attribute `loop`, one of many stages a step
  kControl,  ///< cond, while: a stage whose regions have stages of their own
  kCall      ///< a stage of its own: a kernel of the runtime or the interpreter
};
Lowering lowering_of(const ir::Program& program, const ir::Op& op);

}  // namespace weft::passes
