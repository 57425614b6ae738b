#pragma once

#include <llvm/IR/IRBuilder.h>

#include "base/dtype.h"

namespace weft::codegen {

// Elements of f16 and bf16 are 16 bits in memory and f32 in registers. A register of such a type always holds numbers
// that the type has.

/// Converts elements from memory (i16, a vector or a scalar) to registers (f32). Exact; NaNs of f16 become quiet.
llvm::Value* emit_from_half(llvm::IRBuilder<>& b, llvm::Value* bits, DType dtype);

/// Rounds any f32 to a number of the type, to nearest, ties to even; NaN stays NaN. `flushes`: denormals may become
/// zero, which takes one instruction where the CPU has it.
llvm::Value* emit_round_to_half(llvm::IRBuilder<>& b, llvm::Value* x, DType dtype, bool flushes = false);

/// Converts a register that holds numbers of the type to its form in memory.
llvm::Value* emit_to_half(llvm::IRBuilder<>& b, llvm::Value* x, DType dtype);

}  // namespace weft::codegen
