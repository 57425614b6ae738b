#pragma once

#include <map>
#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// The stages of each block. A block is known by its address: a region stays where it is when ops are inserted around
/// the op that it belongs to.
using FusedBlocks = std::map<const ir::Block*, std::vector<Stage>>;

/// Groups the ops of each block into stages, each one loop nest of machine code, in order of execution:
///
///     %g = matmul_packed %h, %p {groups = 3, ...} : f32[B,48]          // stage 0
///     %a = slice %g {dim = 1, start = 0, limit = 16} : f32[B,16]       // a view: read in place, in no stage
///     %r = sigmoid %a : f32[B,16]                                      // stage 0, on the product's registers
///
/// Ops share a stage when they share a domain (the shape they run over) and read each other only at the element at
/// hand; a product's result may also be read through the slices that its panels interleave. What reads other elements
/// (the left side of a product, a reduction's result) starts a later stage.
/// An elementwise op whose result only waits in memory for a later stage is done in that stage.
/// A stage is bounded, since LLVM's time grows faster than the size of a loop nest. An op for which there is no room
/// starts a later stage too, and reads the values of earlier stages through memory.
///
/// A scan whose region is all machine code is one stage, one function with the loop in it (Lowering::kScan); it is
/// `batched` when its rows are independent. Another scan (of a gather, of a scan, of hundreds of stages) is a kLoop:
/// its region is divided into stages as the body is, which run step by step; so are the regions of cond and while. A
/// ragged scan that is not all machine code runs in the interpreter (kCall). `rules` keeps these decisions.
///
/// Copies are inserted where a value needs memory of its own (a view that is returned, a broadcast that a product
/// reads). A concatenation of columns of one value that only outer products and sums over rows read becomes a view too
/// (LoweringRules::is_ranges).
FusedBlocks fuse(ir::Program& program, LoweringRules& rules);

}  // namespace weft::planning
