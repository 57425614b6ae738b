#include "packages/math/remainder.h"

#include <llvm/IR/Intrinsics.h>

#include "codegen/float_ops.h"
#include "codegen/isa.h"
#include "packages/math/rare_lanes.h"

namespace weft::packages {
namespace {

using codegen::absolute, codegen::number, codegen::round_even;
using llvm::IRBuilder;
using llvm::Value;

/// size - quotient * divisor, exactly, for the whole quotient below 2^50 that is nearest: the difference is an f64.
/// Without multiply-adds the product is in two parts, of parts of the factors whose products have no more bits than f64
/// (Dekker).
Value* rest_of(IRBuilder<>& b, Value* size, Value* quotient, Value* divisor) {
  if (codegen::vector_isa(b).fused)
    return b.CreateIntrinsic(llvm::Intrinsic::fma, {size->getType()}, {b.CreateFNeg(quotient), divisor, size});
  Value* above = b.CreateFMul(round_even(b, b.CreateFMul(quotient, number(size, 0x1p-26))), number(size, 0x1p26));
  Value* below = b.CreateFSub(quotient, above);
  llvm::Type* integers = size->getType()->getWithNewType(b.getInt64Ty());
  Value* mask = llvm::ConstantInt::getSigned(integers, -(int64_t{1} << 26));
  Value* front = b.CreateBitCast(b.CreateAnd(b.CreateBitCast(divisor, integers), mask), size->getType());
  Value* back = b.CreateFSub(divisor, front);
  Value* product = b.CreateFMul(quotient, divisor);
  Value* lost = b.CreateFSub(product, b.CreateFMul(above, front));
  lost = b.CreateFSub(lost, b.CreateFMul(above, back));
  lost = b.CreateFSub(lost, b.CreateFMul(below, front));
  lost = b.CreateFSub(lost, b.CreateFMul(below, back));
  return b.CreateFAdd(b.CreateFSub(size, product), lost);
}

/// Finite operands whose quotient is too large for the vectors' formula.
Value* is_large(IRBuilder<>& b, Value* x, Value* y, bool of_f32) {
  Value *size = absolute(b, x), *divisor = absolute(b, y), *quotient = b.CreateFDiv(size, divisor);
  Value* infinity = llvm::ConstantFP::getInfinity(x->getType());
  // Of two numbers of f32 only an infinite dividend or a divisor of 0 have an infinite quotient in f64.
  if (of_f32) return b.CreateAnd(b.CreateFCmpOGE(quotient, number(x, 0x1p29)), b.CreateFCmpOLT(quotient, infinity));
  Value* large = b.CreateFCmpOGE(quotient, number(x, 0x1p50));
  // Near the largest f64 a product in parts could overflow. Of a smaller dividend the remainder is the dividend.
  if (!codegen::vector_isa(b).fused)
    large = b.CreateOr(large, b.CreateAnd(b.CreateFCmpOGT(size, number(x, 0x1p1000)), b.CreateFCmpOLE(divisor, size)));
  Value* finite = b.CreateAnd(b.CreateFCmpOLT(size, infinity), b.CreateFCmpOGT(divisor, number(x, 0)));
  return b.CreateAnd(large, finite);
}

/// 2^exponent for an exponent of a normal f64, an i64.
Value* power_of_two(IRBuilder<>& b, Value* exponent) {
  return b.CreateBitCast(b.CreateShl(b.CreateAdd(exponent, b.getInt64(1023)), 52), b.getDoubleTy());
}

/// |x| = mantissa 2^(exponent - 1075), with a mantissa below 2^53.
struct FloatParts {
  Value *mantissa, *exponent;

  FloatParts(IRBuilder<>& b, Value* x) {
    constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
    Value* bits = b.CreateBitCast(x, b.getInt64Ty());
    Value* fraction = b.CreateAnd(bits, b.getInt64(kFraction));
    exponent = b.CreateAnd(b.CreateLShr(bits, 52), b.getInt64(0x7ff));
    Value* subnormal = b.CreateICmpEQ(exponent, b.getInt64(0));
    mantissa = b.CreateSelect(subnormal, fraction, b.CreateOr(fraction, b.getInt64(kFraction + 1)));
    exponent = b.CreateSelect(subnormal, b.getInt64(1), exponent);
  }
};

/// The remainder of one finite x by one finite y that isn't larger and isn't 0, in integers: 11 bits of the quotient at
/// a time, since a remainder shifted by them still has 64 bits.
Values divide(IRBuilder<>& b, Value* x, Value* y) {
  constexpr uint64_t kBits = 11;
  const FloatParts dividend(b, x), divisor(b, y);
  Value* distance = b.CreateSub(dividend.exponent, divisor.exponent);
  Value* first = b.CreateURem(dividend.mantissa, divisor.mantissa);
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* inside = llvm::BasicBlock::Create(b.getContext(), "bits", function);
  auto* more = llvm::BasicBlock::Create(b.getContext(), "more", function);
  auto* end = llvm::BasicBlock::Create(b.getContext(), "divided", function);
  b.CreateBr(inside);
  b.SetInsertPoint(inside);
  llvm::PHINode *rest = b.CreatePHI(b.getInt64Ty(), 2), *left = b.CreatePHI(b.getInt64Ty(), 2);
  rest->addIncoming(first, before);
  left->addIncoming(distance, before);
  b.CreateCondBr(b.CreateICmpEQ(left, b.getInt64(0)), end, more);
  b.SetInsertPoint(more);
  Value* few = b.CreateICmpULT(left, b.getInt64(kBits));
  Value* shift = b.CreateSelect(few, left, b.getInt64(kBits));
  rest->addIncoming(b.CreateURem(b.CreateShl(rest, shift), divisor.mantissa), more);
  left->addIncoming(b.CreateSub(left, shift), more);
  b.CreateBr(inside);
  b.SetInsertPoint(end);
  // 2^(exponent - 1075) can be less than the least normal number, so it is multiplied in as two factors.
  Value* exponent = b.CreateSub(divisor.exponent, b.getInt64(1075));
  Value* half = b.CreateAShr(exponent, 1);
  Value* result = b.CreateFMul(b.CreateSIToFP(rest, b.getDoubleTy()), power_of_two(b, half));
  result = b.CreateFMul(result, power_of_two(b, b.CreateSub(exponent, half)));
  return {b.CreateCopySign(result, x)};
}

}  // namespace

Value* emit_remainder(IRBuilder<>& b, Value* x, Value* y, bool of_f32) {
  Value *size = absolute(b, x), *divisor = absolute(b, y), *zero = number(x, 0);
  Value* quotient = round_even(b, b.CreateFDiv(size, divisor));
  // A product of a quotient below 2^29 by an f32 has no more bits than f64.
  Value* rest = of_f32 ? b.CreateFSub(size, b.CreateFMul(quotient, divisor)) : rest_of(b, size, quotient, divisor);
  rest = b.CreateSelect(b.CreateFCmpOLT(rest, zero), b.CreateFAdd(rest, divisor), rest);
  rest = b.CreateSelect(b.CreateFCmpOLT(size, divisor), size, rest);  // of an infinite divisor too
  const RareCase large{
      of_f32 ? "long_quotients_f32" : "long_quotients",
      [of_f32](IRBuilder<>& b, std::span<Value* const> operands) {
        return is_large(b, operands[0], operands[1], of_f32);
      },
      [](IRBuilder<>& b, std::span<Value* const> operands) { return divide(b, operands[0], operands[1]); }};
  Value* operands[] = {x, y};
  return with_rare_lanes(b, large, operands, {b.CreateCopySign(rest, x)})[0];
}

}  // namespace weft::packages
