#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

#include "ir/program.h"

namespace weft::codegen {

/// The LLVM type of one element in a register: i1 for bool, f32 for f16 and bf16.
llvm::Type* register_type(llvm::IRBuilder<>& b, DType dtype);
/// The LLVM type of one element in memory: i8 for bool, i16 for f16 and bf16.
llvm::Type* memory_type(llvm::IRBuilder<>& b, DType dtype);

/// Converts a vector or scalar from its type in memory to its type in registers, and back.
llvm::Value* emit_from_memory(llvm::IRBuilder<>& b, llvm::Value* loaded, DType dtype);
llvm::Value* emit_to_memory(llvm::IRBuilder<>& b, llvm::Value* value, DType dtype);

/// The result vector of an elementwise op on operand vectors, with the semantics of ir/ops.def. `from` is the operands'
/// type, `to` the result's. `coarse`: as in vector_math.h.
llvm::Value* emit_elementwise(llvm::IRBuilder<>& b, const ir::Op& op, DType from, DType to,
                              std::span<llvm::Value* const> operands, bool coarse = false);

/// A vector of `lanes` times the constant's value.
llvm::Value* emit_constant(llvm::IRBuilder<>& b, const ir::Op& op, DType dtype, int64_t lanes);

/// The larger of two vectors, NaN if either is.
llvm::Value* emit_maximum(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);

}  // namespace weft::codegen
