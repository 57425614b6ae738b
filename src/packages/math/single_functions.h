#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

#include "ir/program.h"

namespace weft::packages {

/// A function of C's library on one or two vectors of f32, in f32 and integers of 32 bits, for processors that have no
/// f64: each is written once in an object, and called for each element. Within 2 units in the last place; pow and atan2
/// 3, erfc 4, rem exactly. log(exp(x) + exp(y)) has an error of 2 units of the larger of |x|, |y| and 1. At the edges
/// results are C's. Null for a function that other targets compute in f32, too (erf, log1p).
llvm::Value* emit_single_function(llvm::IRBuilder<>& b, ir::OpCode code, std::span<llvm::Value* const> operands);

}  // namespace weft::packages
