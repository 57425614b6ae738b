#pragma once

#include <llvm/IR/IRBuilder.h>

namespace weft::packages {

/// C's fmod(x, y), exactly, of vectors of f32, in integers of 32 bits.
llvm::Value* emit_single_remainder(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);

}  // namespace weft::packages
