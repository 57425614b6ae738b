#include "codegen/half.h"

#include <llvm/IR/IntrinsicsX86.h>

#include "base/error.h"
#include "codegen/isa.h"

// bf16 is the high half of an f32. Integer arithmetic rounds to it on every instruction set. The instruction of
// AVX512-BF16 takes denormals for zeros, so only casts with excess_precision may use it. For f16 there are instructions
// wherever there is AVX2 (F16C); elsewhere it is integer arithmetic too, since LLVM would call a library function for
// every element.

namespace weft::codegen {
namespace {

using llvm::IRBuilder;
using llvm::Value;

constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
constexpr uint32_t kHalfBias = 112u << 23;  // the difference of the exponent biases of f32 and f16, in f32's exponent
                                            // field

/// The same type, a vector or not, of other elements.
llvm::Type* with(Value* like, llvm::Type* element) { return like->getType()->getWithNewType(element); }

Value* integer(Value* like, uint64_t value) { return llvm::ConstantInt::get(like->getType(), value); }

Value* bits_of(IRBuilder<>& b, Value* x) { return b.CreateBitCast(x, with(x, b.getInt32Ty())); }

Value* float_of(IRBuilder<>& b, Value* bits) { return b.CreateBitCast(bits, with(bits, b.getFloatTy())); }

bool has_f16c(const IRBuilder<>& b) { return vector_isa(b).f16c; }

/// Whether the processor can round this vector to bf16 by one instruction, which takes denormals for zeros.
bool has_instruction(const IRBuilder<>& b, Value* x) {
  return x->getType()->isVectorTy() && x->getType()->getPrimitiveSizeInBits() == 512 && vector_isa(b).bf16_rounding;
}

Value* from_f16(IRBuilder<>& b, Value* bits) {
  Value* wide = b.CreateZExt(bits, with(bits, b.getInt32Ty()));
  Value* magnitude = b.CreateAnd(wide, integer(wide, 0x7fff));
  Value* shifted = b.CreateShl(magnitude, integer(wide, 13));
  Value* normal = b.CreateAdd(shifted, integer(wide, kHalfBias));
  // Infinity and NaN: the exponent is all ones in either type; a NaN is quiet from here on.
  Value* special = b.CreateAdd(shifted, integer(wide, 2 * uint64_t{kHalfBias}));
  Value* is_nan = b.CreateICmpUGT(magnitude, integer(wide, 0x7c00));
  special = b.CreateSelect(is_nan, b.CreateOr(special, integer(wide, 0x400000)), special);
  // Denormals are multiples of 2^-24: the last bits of numbers from 0.5 on.
  Value* above_half = float_of(b, b.CreateAdd(magnitude, integer(wide, 0x3f000000)));
  Value* small = bits_of(b, b.CreateFSub(above_half, llvm::ConstantFP::get(above_half->getType(), 0.5)));
  Value* result = b.CreateSelect(b.CreateICmpULT(magnitude, integer(wide, 0x400)), small, normal);
  result = b.CreateSelect(b.CreateICmpUGE(magnitude, integer(wide, 0x7c00)), special, result);
  Value* sign = b.CreateShl(b.CreateAnd(wide, integer(wide, 0x8000)), integer(wide, 16));
  return float_of(b, b.CreateOr(result, sign));
}

Value* to_f16(IRBuilder<>& b, Value* x) {
  Value* bits = bits_of(b, x);
  Value* magnitude = b.CreateAnd(bits, integer(bits, kMagnitude));
  Value* payload = b.CreateAnd(b.CreateLShr(magnitude, integer(bits, 13)), integer(bits, 0x3ff));
  Value* nan = b.CreateOr(payload, integer(bits, 0x7e00));
  // Below the smallest normal number: multiples of 2^-24, which the addition rounds to.
  Value* near_zero = float_of(b, magnitude);
  Value* sum = b.CreateFAdd(near_zero, llvm::ConstantFP::get(near_zero->getType(), 0.5));
  Value* small = b.CreateSub(bits_of(b, sum), integer(bits, 0x3f000000));
  Value* odd = b.CreateAnd(b.CreateLShr(magnitude, integer(bits, 13)), integer(bits, 1));
  Value* rounded = b.CreateAdd(b.CreateAdd(magnitude, odd), integer(bits, 0xfff));
  Value* normal = b.CreateLShr(b.CreateSub(rounded, integer(bits, kHalfBias)), integer(bits, 13));
  Value* result = b.CreateSelect(b.CreateICmpULT(magnitude, integer(bits, 0x38800000)), small, normal);
  result = b.CreateSelect(b.CreateICmpUGE(magnitude, integer(bits, 0x477ff000)), integer(bits, 0x7c00), result);
  result = b.CreateSelect(b.CreateICmpUGT(magnitude, integer(bits, kInfinity)), nan, result);
  Value* sign = b.CreateAnd(b.CreateLShr(bits, integer(bits, 16)), integer(bits, 0x8000));
  return b.CreateTrunc(b.CreateOr(result, sign), with(bits, b.getInt16Ty()));
}

Value* round_to_bf16(IRBuilder<>& b, Value* x) {
  Value* bits = bits_of(b, x);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, integer(bits, 16)), integer(bits, 1));
  Value* rounded = b.CreateAdd(b.CreateAdd(bits, odd), integer(bits, 0x7fff));
  Value* quiet = b.CreateOr(bits, integer(bits, 0x400000));
  Value* result = b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded);
  return float_of(b, b.CreateAnd(result, integer(bits, 0xffff0000)));
}

}  // namespace

Value* emit_from_half(IRBuilder<>& b, Value* bits, DType dtype) {
  internal_check(is_half(dtype), "{} is no half", name_of(dtype));
  if (dtype == DType::kBF16) {
    Value* wide = b.CreateZExt(bits, with(bits, b.getInt32Ty()));
    return float_of(b, b.CreateShl(wide, integer(wide, 16)));
  }
  if (!has_f16c(b)) return from_f16(b, bits);
  return b.CreateFPExt(b.CreateBitCast(bits, with(bits, b.getHalfTy())), with(bits, b.getFloatTy()));
}

Value* emit_round_to_half(IRBuilder<>& b, Value* x, DType dtype, bool flushes) {
  internal_check(is_half(dtype), "{} is no half", name_of(dtype));
  if (dtype == DType::kBF16 && flushes && has_instruction(b, x)) {
    Value* half = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {x});
    return emit_from_half(b, b.CreateBitCast(half, with(half, b.getInt16Ty())), dtype);
  }
  if (dtype == DType::kBF16) return round_to_bf16(b, x);
  if (!has_f16c(b)) return from_f16(b, to_f16(b, x));
  return b.CreateFPExt(b.CreateFPTrunc(x, with(x, b.getHalfTy())), x->getType());
}

Value* emit_to_half(IRBuilder<>& b, Value* x, DType dtype) {
  internal_check(is_half(dtype), "{} is no half", name_of(dtype));
  if (dtype == DType::kBF16) {
    Value* bits = bits_of(b, x);
    return b.CreateTrunc(b.CreateLShr(bits, integer(bits, 16)), with(x, b.getInt16Ty()));
  }
  if (!has_f16c(b)) return to_f16(b, x);
  // A value that has just been rounded is there as an f16 already: what was widened.
  auto* extended = llvm::dyn_cast<llvm::FPExtInst>(x);
  Value* half = extended && extended->getSrcTy()->getScalarType()->isHalfTy()
                    ? extended->getOperand(0)
                    : b.CreateFPTrunc(x, with(x, b.getHalfTy()));
  return b.CreateBitCast(half, with(x, b.getInt16Ty()));
}

}  // namespace weft::codegen
