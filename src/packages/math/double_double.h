#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "codegen/isa.h"

namespace weft::packages {

// Sums and products of f64 with twice its digits (T. J. Dekker, "A floating-point technique for extending the available
// precision", 1971), and of f32 on processors with multiply-adds of f32.

/// A number as the sum of two, of which `low` is at most about a unit in the last place of `high`.
struct Two {
  llvm::Value *high, *low;
};

/// The leading 26 bits of an f64.
inline llvm::Value* leading_bits(llvm::IRBuilder<>& b, llvm::Value* x) {
  llvm::Type* integers = x->getType()->getWithNewType(b.getInt64Ty());
  llvm::Value* mask = llvm::ConstantInt::getSigned(integers, -(int64_t{1} << 27));
  return b.CreateBitCast(b.CreateAnd(b.CreateBitCast(x, integers), mask), x->getType());
}

/// x + y exactly, for |x| >= |y| or x = 0.
inline Two exact_sum(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y) {
  llvm::Value* sum = b.CreateFAdd(x, y);
  return {sum, b.CreateFSub(y, b.CreateFSub(sum, x))};
}

/// x + y for |x| >= |y| or x = 0.
inline Two add_smaller(llvm::IRBuilder<>& b, const Two& x, llvm::Value* y) {
  const Two sum = exact_sum(b, x.high, y);
  return {sum.high, b.CreateFAdd(sum.low, x.low)};
}

/// x y, exactly with multiply-adds (as f32 is taken to have) and else within 2^-105 of it. Where `high` overflows,
/// `low` is NaN.
inline Two exact_product(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y) {
  llvm::Value* product = b.CreateFMul(x, y);
  if (x->getType()->getScalarType()->isFloatTy() || codegen::vector_isa(b).fused)
    return {product, b.CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, y, b.CreateFNeg(product)})};
  llvm::Value *x_front = leading_bits(b, x), *y_front = leading_bits(b, y);
  llvm::Value *x_back = b.CreateFSub(x, x_front), *y_back = b.CreateFSub(y, y_front);
  llvm::Value* low = b.CreateFSub(b.CreateFMul(x_front, y_front), product);
  low = b.CreateFAdd(low, b.CreateFMul(x_front, y_back));
  low = b.CreateFAdd(low, b.CreateFMul(x_back, y_front));
  return {product, b.CreateFAdd(low, b.CreateFMul(x_back, y_back))};
}

/// x y within 2^-102 of it (2^-44 in f32).
inline Two product(llvm::IRBuilder<>& b, const Two& x, const Two& y) {
  const Two high = exact_product(b, x.high, y.high);
  llvm::Value* cross = b.CreateFAdd(b.CreateFMul(x.high, y.low), b.CreateFMul(x.low, y.high));
  return {high.high, b.CreateFAdd(high.low, cross)};
}

}  // namespace weft::packages
