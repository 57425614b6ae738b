#pragma once

#include <llvm/IR/IRBuilder.h>

namespace weft::packages {

/// sin(x), or cos(x), of vectors of f64 of any size, within 2 units in the last place; `of_f32`: the elements are
/// numbers of f32 and so is the result, so that fewer digits of pi are enough for small ones.
llvm::Value* emit_sine(llvm::IRBuilder<>& b, llvm::Value* x, bool cosine, bool of_f32);

}  // namespace weft::packages
