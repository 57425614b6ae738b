// Sine and cosine of large numbers, reduced as by M. Payne and R. Hanek, "Radian reduction for trigonometric
// functions", SIGNUM Newsletter 18 (1983), in integers of 32 bits whose products have 64: every target has these.
#include "packages/math/turns.h"

#include <llvm/IR/Intrinsics.h>

#include <array>

#include "codegen/float_ops.h"
#include "codegen/library_math.h"
#include "packages/math/double_double.h"
#include "packages/math/rare_lanes.h"

namespace weft::packages {
namespace {

using codegen::absolute, codegen::number;
using llvm::IRBuilder;
using llvm::Value;

/// 64 zeros, then 1,184 bits of 2/pi behind the point.
constexpr std::array<uint32_t, 39> kTwoByPiWords = {
    0,          0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
    0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e,
    0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b,
    0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d,
    0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046};

/// 192 bits in words of 32, each in an i64, the lowest first.
using Words = std::array<Value*, 6>;

Value* low_word(IRBuilder<>& b, Value* x) { return b.CreateAnd(x, b.getInt64(0xffffffff)); }

llvm::GlobalVariable* table(llvm::Module& module) {
  constexpr const char* kName = "two_by_pi";
  if (auto* known = module.getNamedGlobal(kName)) return known;
  llvm::Constant* words = llvm::ConstantDataArray::get(module.getContext(), llvm::ArrayRef<uint32_t>(kTwoByPiWords));
  return new llvm::GlobalVariable(module, words->getType(), true, llvm::GlobalValue::InternalLinkage, words, kName);
}

/// 192 bits of the table, the first of them at an i32 `bit`.
Words bits_from(IRBuilder<>& b, Value* bit) {
  llvm::GlobalVariable* words = table(*b.GetInsertBlock()->getModule());
  Value *first = b.CreateLShr(bit, b.getInt32(5)), *shift = b.CreateAnd(bit, b.getInt32(31));
  Value* loaded[7];
  for (unsigned i = 0; i < 7; ++i)
    loaded[i] =
        b.CreateLoad(b.getInt32Ty(), b.CreateInBoundsGEP(b.getInt32Ty(), words, b.CreateAdd(first, b.getInt32(i))));
  Words found;
  for (unsigned i = 0; i < 6; ++i) {
    Value* word = b.CreateIntrinsic(llvm::Intrinsic::fshl, {b.getInt32Ty()}, {loaded[i], loaded[i + 1], shift});
    found[5 - i] = b.CreateZExt(word, b.getInt64Ty());
  }
  return found;
}

/// The low 192 bits of the product with a number of 53 bits.
Words times(IRBuilder<>& b, const Words& words, Value* factor) {
  Value *low = low_word(b, factor), *high = b.CreateLShr(factor, 32), *carry = b.getInt64(0);
  Words product;
  for (size_t i = 0; i < 6; ++i) {
    Value* sum = b.CreateAdd(b.CreateMul(words[i], low), carry);
    product[i] = low_word(b, sum);
    carry = b.CreateLShr(sum, 32);
  }
  carry = b.getInt64(0);
  for (size_t i = 1; i < 6; ++i) {
    Value* sum = b.CreateAdd(b.CreateAdd(b.CreateMul(words[i - 1], high), product[i]), carry);
    product[i] = low_word(b, sum);
    carry = b.CreateLShr(sum, 32);
  }
  return product;
}

/// A fraction of words behind the point, times pi/2. A fraction may begin with some 60 zeros.
Value* angle_of(IRBuilder<>& b, const Words& fraction) {
  Two sum{nullptr, nullptr};
  double unit = 1;
  for (size_t i = 6; i-- > 1;) {  // the last word is too small to count
    unit *= 0x1p-32;
    Value* word = b.CreateTrunc(fraction[i], b.getInt32Ty());  // which 32-bit processors convert
    Value* term = b.CreateFMul(b.CreateUIToFP(word, b.getDoubleTy()), llvm::ConstantFP::get(b.getDoubleTy(), unit));
    sum = sum.high == nullptr ? Two{term, number(term, 0)} : add_smaller(b, sum, term);
  }
  // The leading 26 bits of both factors, whose product is exact, and the rest.
  constexpr double kHalfPi = 1.5707963109016418, kHalfPiRest = 1.5893254773528196e-08;
  Value* front = leading_bits(b, sum.high);
  Value* back = b.CreateFAdd(b.CreateFSub(sum.high, front), sum.low);
  Value* rest = b.CreateFMul(back, number(back, kHalfPi));
  rest = b.CreateFAdd(rest, b.CreateFMul(b.CreateFAdd(front, back), number(back, kHalfPiRest)));
  return b.CreateFAdd(b.CreateFMul(front, number(front, kHalfPi)), rest);
}

/// x = n pi/2 + rest for one finite |x| >= 2^-21: n modulo 4 and the rest. With x = m 2^e, the bits of 2/pi above 2^(2
/// - e) contribute multiples of 4 to the quotient. The next 192 are enough: 53 for m, 2 for the quadrant, 61 that can
/// be zero since no f64 is nearer to a multiple of pi/2, and 76 for the rest.
Values reduce(IRBuilder<>& b, Value* x) {
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  constexpr uint32_t kBiasOfBit = 1013;  // the bit of 2^(2 - e) / 2 in the table is the biased exponent minus this
  Value* bits = b.CreateBitCast(x, b.getInt64Ty());
  Value* exponent = b.CreateAnd(b.CreateTrunc(b.CreateLShr(bits, 52), b.getInt32Ty()), b.getInt32(0x7ff));
  Value* mantissa = b.CreateOr(b.CreateAnd(bits, b.getInt64(kFraction)), b.getInt64(kFraction + 1));
  const Words quarters = times(b, bits_from(b, b.CreateSub(exponent, b.getInt32(kBiasOfBit))), mantissa);
  // Two bits before the point; the nearest quadrant is one more from a half on.
  Value* quadrant = b.CreateLShr(b.CreateAdd(quarters[5], b.getInt64(1 << 29)), 30);
  Value* is_less = b.CreateICmpNE(b.CreateAnd(quarters[5], b.getInt64(1 << 29)), b.getInt64(0));
  Words fraction;
  for (size_t i = 0; i < 6; ++i) {
    Value* word = b.CreateShl(quarters[i], 2);
    if (i > 0) word = b.CreateOr(word, b.CreateLShr(quarters[i - 1], 30));
    // The complement lacks a bit in the last place of 192.
    fraction[i] = low_word(b, b.CreateSelect(is_less, b.CreateNot(word), word));
  }
  Value* rest = angle_of(b, fraction);
  Value* negative = b.CreateICmpSLT(bits, b.getInt64(0));
  rest = b.CreateSelect(b.CreateXor(is_less, negative), b.CreateFNeg(rest), rest);
  return {rest, b.CreateSelect(negative, b.CreateNeg(quadrant), quadrant)};
}

}  // namespace

Value* emit_sine(IRBuilder<>& b, Value* x, bool cosine, bool of_f32) {
  const codegen::Turn turn = codegen::emit_turn(b, x, !of_f32);
  const RareCase large{"large_angles",
                       [](IRBuilder<>& b, std::span<Value* const> operands) {
                         Value* size = absolute(b, operands[0]);
                         return b.CreateAnd(b.CreateFCmpOGT(size, number(size, codegen::kMostTurned)),
                                            b.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(size->getType())));
                       },
                       [](IRBuilder<>& b, std::span<Value* const> operands) { return reduce(b, operands[0]); }};
  const Values found = with_rare_lanes(b, large, {&x, 1}, {turn.rest, turn.quadrant});
  return codegen::emit_sine(b, {found[0], found[1]}, cosine);
}

}  // namespace weft::packages
