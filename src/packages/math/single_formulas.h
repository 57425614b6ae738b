#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <span>

#include "codegen/float_ops.h"

namespace weft::packages {

// Building blocks for formulas in f32 and integers of 32 bits, for processors that have no others: multiply-adds of f32
// that round once, and products of 64 bits.

/// x y + z, rounded once. (codegen::fma may round twice.)
inline llvm::Value* fused(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y, llvm::Value* z) {
  return b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, z});
}

/// Horner's rule, the highest coefficient first.
inline llvm::Value* fused_polynomial(llvm::IRBuilder<>& b, llvm::Value* x, std::span<const double> coefficients) {
  llvm::Value* sum = codegen::number(x, coefficients[0]);
  for (double c : coefficients.subspan(1)) sum = fused(b, sum, x, codegen::number(x, c));
  return sum;
}

/// The product of two i32 without signs as an i64.
inline llvm::Value* wide_product(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y) {
  return b.CreateMul(b.CreateZExt(x, b.getInt64Ty()), b.CreateZExt(y, b.getInt64Ty()));
}

inline llvm::Value* high_word(llvm::IRBuilder<>& b, llvm::Value* x) {
  return b.CreateTrunc(b.CreateLShr(x, 32), b.getInt32Ty());
}

/// The high word of two words, shifted to the left by less than 32.
inline llvm::Value* shift_left(llvm::IRBuilder<>& b, llvm::Value* high, llvm::Value* low, llvm::Value* count) {
  return b.CreateIntrinsic(llvm::Intrinsic::fshl, {high->getType()}, {high, low, count});
}

}  // namespace weft::packages
