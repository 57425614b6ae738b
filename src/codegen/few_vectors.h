#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/vector_math.h"

namespace weft::codegen {

// sigmoid and tanh of f32 where few vectors are computed at a time: what counts is how many operations wait for each
// other, and not how many there are. As accurate as emit_sigmoid and emit_tanh.
//
// With AVX-512 powers come from a table of the 16 numbers 2^(j/16), which a shuffle reads, and from a short polynomial.
// Elsewhere the formulas are those of emit_sigmoid and emit_tanh without AVX-512. In both cases the result
// is one division, which is faster where a processor has nothing else to do meanwhile, and slower where it has many
// vectors to divide.

Quotient emit_sigmoid_quotient(llvm::IRBuilder<>& b, llvm::Value* x);
Quotient emit_tanh_quotient(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emit_sigmoid_alone(llvm::IRBuilder<>& b, llvm::Value* x);
llvm::Value* emit_tanh_alone(llvm::IRBuilder<>& b, llvm::Value* x);

}  // namespace weft::codegen
