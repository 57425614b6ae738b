#pragma once

#include <llvm/IR/IRBuilder.h>

namespace weft::packages {

// Functions of vectors of f64 for which f64 alone has too few digits between.

/// C's pow(x, y), within 2 units in the last place.
llvm::Value* emit_double_power(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y);

/// Within 2 units in the last place.
llvm::Value* emit_double_erf(llvm::IRBuilder<>& b, llvm::Value* x);
/// Within 4 units in the last place.
llvm::Value* emit_double_erfc(llvm::IRBuilder<>& b, llvm::Value* x);

}  // namespace weft::packages
