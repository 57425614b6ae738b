#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Calls of PyTorch's kernels that have a form of ops of the IR's are written as these, in regions too: convolutions
/// (of any weights; transposed ones too) and pooling, of known sizes. The ops of a form have their call's note of the
/// operation that they are part of. Other calls stay.
///
///   %y = extern %x, %w {call = "aten.convolution.default(%0, %1, None, [1], [1], [1], false, [0], 1)"} : f32[2,8,20]
///
/// becomes slices of %x padded, one for each element of the kernel, and a product of these, side by side, by %w.
void native_calls(ir::Program& program);

}  // namespace weft::passes
