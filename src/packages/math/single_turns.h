#pragma once

#include <llvm/IR/IRBuilder.h>

namespace weft::packages {

/// sin(x), or cos(x), of vectors of f32 of any size, within 2 units in the last place, in f32 and integers of 32 bits.
llvm::Value* emit_single_sine(llvm::IRBuilder<>& b, llvm::Value* x, bool cosine);

}  // namespace weft::packages
