#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <span>

namespace weft::codegen {

// Building blocks for formulas on vectors of f32 or f64.

/// The number in each lane.
inline llvm::Value* number(llvm::Value* like, double value) { return llvm::ConstantFP::get(like->getType(), value); }

inline llvm::Value* absolute(llvm::IRBuilder<>& b, llvm::Value* x) {
  return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
}

inline llvm::Value* fma(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y, llvm::Value* z) {
  return b.CreateIntrinsic(llvm::Intrinsic::fmuladd, {x->getType()}, {x, y, z});
}

/// min(x, limit), NaN staying NaN.
inline llvm::Value* at_most(llvm::IRBuilder<>& b, llvm::Value* x, double limit) {
  return b.CreateSelect(b.CreateFCmpOGT(x, number(x, limit)), number(x, limit), x);
}

inline llvm::Value* at_least(llvm::IRBuilder<>& b, llvm::Value* x, double limit) {
  return b.CreateSelect(b.CreateFCmpOLT(x, number(x, limit)), number(x, limit), x);
}

/// Horner's rule, the highest coefficient first.
inline llvm::Value* polynomial(llvm::IRBuilder<>& b, llvm::Value* x, std::span<const double> coefficients) {
  llvm::Value* sum = number(x, coefficients[0]);
  for (double c : coefficients.subspan(1)) sum = fma(b, sum, x, number(x, c));
  return sum;
}

/// To the nearest integer, ties to even: adding 2^52 (2^23 in f32) leaves no bits behind the point.
inline llvm::Value* round_even(llvm::IRBuilder<>& b, llvm::Value* x) {
  llvm::Value* large = number(x, x->getType()->getScalarType()->isDoubleTy() ? 0x1p52 : 0x1p23);
  llvm::Value* size = absolute(b, x);
  llvm::Value* rounded = b.CreateFSub(b.CreateFAdd(size, large), large);
  return b.CreateCopySign(b.CreateSelect(b.CreateFCmpOLT(size, large), rounded, size), x);
}

}  // namespace weft::codegen
