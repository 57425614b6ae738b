#pragma once

#include <llvm/IR/IRBuilder.h>

namespace weft::packages {

/// C's fmod(x, y), exactly, of vectors of f64; `of_f32`: the elements are numbers of f32.
llvm::Value* emit_remainder(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y, bool of_f32);

}  // namespace weft::packages
