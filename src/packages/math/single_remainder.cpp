#include "packages/math/single_remainder.h"

#include <llvm/IR/Intrinsics.h>

#include "packages/math/shared_functions.h"

namespace weft::packages {
namespace {

using llvm::IRBuilder;
using llvm::Value;

constexpr uint32_t kSign = 1U << 31, kInfinity = 0x7f800000, kNan = 0x7fc00000, kHidden = 1 << 23;

/// A size as mantissa 2^(exponent - 150), with a mantissa below 2^24.
struct SingleParts {
  Value *mantissa, *exponent;

  SingleParts(IRBuilder<>& b, Value* bits) {
    Value* fraction = b.CreateAnd(bits, b.getInt32(kHidden - 1));
    exponent = b.CreateLShr(bits, 23);
    Value* subnormal = b.CreateICmpEQ(exponent, b.getInt32(0));
    mantissa = b.CreateSelect(subnormal, fraction, b.CreateOr(fraction, b.getInt32(kHidden)));
    exponent = b.CreateSelect(subnormal, b.getInt32(1), exponent);
  }
};

/// The remainder of a size by one that isn't larger and isn't 0, both finite: 8 bits of the quotient at a time, since a
/// remainder shifted by them still has 32 bits.
Value* divide_sizes(IRBuilder<>& b, Value* size, Value* divisor_size) {
  constexpr uint32_t kBits = 8;
  const SingleParts dividend(b, size), divisor(b, divisor_size);
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* inside = llvm::BasicBlock::Create(b.getContext(), "bits", before->getParent());
  auto* end = llvm::BasicBlock::Create(b.getContext(), "divided", before->getParent());
  Value* distance = b.CreateSub(dividend.exponent, divisor.exponent);
  b.CreateBr(inside);
  b.SetInsertPoint(inside);
  llvm::PHINode *rest = b.CreatePHI(b.getInt32Ty(), 2), *left = b.CreatePHI(b.getInt32Ty(), 2);
  Value* shift = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, left, b.getInt32(kBits));
  Value* remainder = b.CreateURem(b.CreateShl(rest, shift), divisor.mantissa);
  Value* still = b.CreateSub(left, shift);
  rest->addIncoming(dividend.mantissa, before);
  rest->addIncoming(remainder, inside);
  left->addIncoming(distance, before);
  left->addIncoming(still, inside);
  b.CreateCondBr(b.CreateICmpEQ(still, b.getInt32(0)), end, inside);
  b.SetInsertPoint(end);
  // remainder 2^(exponent - 150) with the hidden bit in its place, or as a subnormal number.
  Value* zeros =
      b.CreateSub(b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, remainder, b.getInt1(false)), b.getInt32(8));
  Value* most = b.CreateSub(divisor.exponent, b.getInt32(1));
  Value* up = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, zeros, most);
  Value* bits = b.CreateAdd(b.CreateShl(remainder, up), b.CreateShl(b.CreateSub(most, up), 23));
  return b.CreateSelect(b.CreateICmpEQ(remainder, b.getInt32(0)), b.getInt32(0), bits);
}

Value* remainder_of(IRBuilder<>& b, Value* x, Value* y) {
  Value *x_bits = b.CreateBitCast(x, b.getInt32Ty()), *y_bits = b.CreateBitCast(y, b.getInt32Ty());
  Value* size = b.CreateAnd(x_bits, b.getInt32(kSign - 1));
  Value* divisor = b.CreateAnd(y_bits, b.getInt32(kSign - 1));
  Value* bad = b.CreateOr(b.CreateICmpEQ(divisor, b.getInt32(0)), b.CreateICmpUGE(size, b.getInt32(kInfinity)));
  bad = b.CreateOr(bad, b.CreateICmpUGT(divisor, b.getInt32(kInfinity)));
  Value* itself = b.CreateOr(bad, b.CreateICmpULT(size, divisor));  // of an infinite divisor too
  Value* rest = either(
      b, itself, [&] { return Values{b.CreateSelect(bad, b.getInt32(kNan), size)}; },
      [&] { return Values{divide_sizes(b, size, divisor)}; })[0];
  return b.CreateBitCast(b.CreateOr(rest, b.CreateAnd(x_bits, b.getInt32(kSign))), b.getFloatTy());
}

}  // namespace

Value* emit_single_remainder(IRBuilder<>& b, Value* x, Value* y) {
  Value* operands[] = {x, y};
  return call_for_lanes(b, "f32_remainder", operands,
                        [](IRBuilder<>& b, Values given) { return remainder_of(b, given[0], given[1]); });
}

}  // namespace weft::packages
