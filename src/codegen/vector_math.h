#pragma once

#include <llvm/IR/IRBuilder.h>

namespace weft::codegen {

/// exp, log, tanh, sigmoid on vectors of f32 or f64, emitted inline. In f32 exp and log are within 2 ulp for every
/// float, tanh and sigmoid within 2.5 (a unit test tries them all); NaN gives NaN, overflow inf, underflow gradually 0.
/// The polynomials are those of Cephes (expf, tanh), except for f32's tanh and sigmoid without AVX-512, which were
/// fitted. exp(x) = 2^n exp(r) with n = round(x / ln 2), |r| <= ln(2)/2; 2^n is two factors, so that subnormal results
/// round once.
///
/// `coarse`: within 2^-12 is enough, since every reader of the result rounds to bf16. It has an effect in f32 only.
llvm::Value* emit_exp(llvm::IRBuilder<>& b, llvm::Value* x);
/// exp(x + rest) for a rest below a unit in the last place of x.
llvm::Value* emit_exp_of_sum(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* rest);
/// log(x) = n ln 2 + log(1 + r), x = 2^n (1 + r) with 1 + r between sqrt(1/2) and sqrt(2): Cephes (logf, log). log(0)
/// is -inf, and of negative numbers NaN.
llvm::Value* emit_log(llvm::IRBuilder<>& b, llvm::Value* x);
/// In f32 one formula for all x: 2^m / (2^m + exp(-r)) with x = m ln 2 + r in registers of AVX-512, which scale by
/// powers of two; elsewhere s / (s + s exp(-x)) with s = 2^-32, which neither overflows nor underflows before the
/// division. In f64 1 / (1 + e) or e / (1 + e) with e = exp(-|x|), and the rounding of 1 + e is corrected for.
llvm::Value* emit_sigmoid(llvm::IRBuilder<>& b, llvm::Value* x, bool coarse = false);
/// In f32 e / (e + 2) with e = exp(2|x|) - 1: there is no cancellation for small x, so one formula serves all. With
/// `coarse` and without AVX-512, a quotient of two polynomials. In f64 a rational function for |x| < 0.625, else 1 - 2
/// / (exp(2|x|) + 1) with the sign of x.
llvm::Value* emit_tanh(llvm::IRBuilder<>& b, llvm::Value* x, bool coarse = false);
/// A number as top / bottom.
struct Quotient {
  llvm::Value *top, *bottom;
};
/// sigmoid and tanh of f32 on any processor as without AVX-512, not yet divided. `soon`: by more operations, of which
/// fewer wait for each other.
Quotient sigmoid_as_quotient(llvm::IRBuilder<>& b, llvm::Value* x, bool soon);
Quotient tanh_as_quotient(llvm::IRBuilder<>& b, llvm::Value* x);
/// exp(x) - 1 as tanh(x / 2) (exp(x) + 1), so within 5 ulp in f32.
llvm::Value* emit_expm1(llvm::IRBuilder<>& b, llvm::Value* x);

}  // namespace weft::codegen
