// Sine and cosine without f64: x = n pi/2 + r by multiply-adds of f32 for |x| < 2^17, and by M. Payne and R. Hanek's
// method (turns.cpp) for larger ones.
#include "packages/math/single_turns.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <array>

#include "codegen/float_ops.h"
#include "packages/math/shared_functions.h"
#include "packages/math/single_formulas.h"

namespace weft::packages {
namespace {

using codegen::absolute, codegen::number;
using llvm::IRBuilder;
using llvm::Value;

constexpr double kMostReduced = 0x1p17;

/// 32 zeros, then 224 bits of 2/pi behind the point.
constexpr std::array<uint32_t, 8> kTwoByPiStart = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                                   0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

/// n modulo 4, an i32, and r with |r| <= pi/4 and little more. For x below kMostReduced the first multiply-add is
/// exact: its result has no bit below 2^-24 and is less than 1. After a cancellation by the second one the third part
/// of pi/2 counts.
Values reduce_small(IRBuilder<>& b, Value* x) {
  constexpr double kTwoByPi = 0.63661977236758134308, kMagic = 0x1.8p23;
  constexpr double kParts[] = {1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15};
  Value* shifted = fused(b, x, number(x, kTwoByPi), number(x, kMagic));
  Value* n = b.CreateFSub(shifted, number(x, kMagic));
  Value* r = x;
  for (double part : kParts) r = fused(b, n, number(x, -part), r);
  return {b.CreateBitCast(shifted, b.getInt32Ty()), r};
}

/// 96 bits of the table, the first of them at `bit`, the highest word first.
std::array<Value*, 3> window_from(IRBuilder<>& b, Value* bit) {
  constexpr const char* kName = "f32_two_by_pi";
  llvm::Module& module = *b.GetInsertBlock()->getModule();
  llvm::GlobalVariable* words = module.getNamedGlobal(kName);
  if (words == nullptr) {
    llvm::Constant* all = llvm::ConstantDataArray::get(b.getContext(), llvm::ArrayRef<uint32_t>(kTwoByPiStart));
    words = new llvm::GlobalVariable(module, all->getType(), true, llvm::GlobalValue::InternalLinkage, all, kName);
  }
  Value *first = b.CreateLShr(bit, b.getInt32(5)), *shift = b.CreateAnd(bit, b.getInt32(31));
  Value* start = b.CreateInBoundsGEP(b.getInt32Ty(), words, first);
  Value* loaded[4];
  for (unsigned i = 0; i < 4; ++i)
    loaded[i] = b.CreateLoad(b.getInt32Ty(), b.CreateConstInBoundsGEP1_32(b.getInt32Ty(), start, i));
  std::array<Value*, 3> found;
  for (unsigned i = 0; i < 3; ++i) found[i] = shift_left(b, loaded[i], loaded[i + 1], shift);
  return found;
}

/// The same for a finite x >= 1: m 2^(e - 23) with m below 2^24. Bits of 2/pi above 2^(25 - e) contribute multiples of
/// 4 to the quotient. Of the product of m and the next 96 the highest 64 are right: 2 for the quadrant, 30 that can be
/// zero since no f32 is nearer to a multiple of pi/2, and 32 for r.
Values reduce_large(IRBuilder<>& b, Value* bits) {
  constexpr uint32_t kFraction = (1 << 23) - 1;
  constexpr uint32_t kQuarterPi = 0xc90fdaa2;     // 2^32 pi/4
  constexpr uint32_t kBiasOfBit = 127 + 25 - 32;  // the table has 32 zeros in front
  Value* mantissa = b.CreateOr(b.CreateAnd(bits, b.getInt32(kFraction)), b.getInt32(kFraction + 1));
  const auto [high, middle, low] = window_from(b, b.CreateSub(b.CreateLShr(bits, 23), b.getInt32(kBiasOfBit)));
  Value* product = b.CreateAdd(wide_product(b, mantissa, middle), b.CreateLShr(wide_product(b, mantissa, low), 32));
  Value* quarters = b.CreateAdd(high_word(b, product), b.CreateMul(mantissa, high));
  Value* next = b.CreateTrunc(product, b.getInt32Ty());
  Value* n = b.CreateLShr(b.CreateAdd(quarters, b.getInt32(1U << 29)), 30);
  // What is behind the point, as a number with a sign and a size. The complement lacks a bit in the last place of 64.
  Value* fraction = shift_left(b, quarters, next, b.getInt32(2));
  Value* sign = b.CreateAShr(fraction, 31);
  fraction = b.CreateXor(fraction, sign);
  Value* rest = b.CreateXor(b.CreateShl(next, 2), sign);
  Value* zeros = b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, fraction, b.getInt1(true));
  fraction = shift_left(b, fraction, rest, zeros);
  Value* angle = b.CreateUIToFP(high_word(b, wide_product(b, fraction, b.getInt32(kQuarterPi))), b.getFloatTy());
  Value* unit = b.CreateShl(b.CreateSub(b.getInt32(127 - 31), zeros), 23);
  Value* r = b.CreateFMul(angle, b.CreateBitCast(unit, b.getFloatTy()));
  Value* negated = b.CreateXor(b.CreateBitCast(r, b.getInt32Ty()), b.CreateAnd(sign, b.getInt32(1U << 31)));
  return {n, b.CreateBitCast(negated, b.getFloatTy())};
}

// (sin(r) - r) / r^3 and (cos(r) - 1 + r^2 / 2) / r^4 as polynomials of r^2 on |r| < 0.8, by Lawson's algorithm.
constexpr double kSine[] = {-1.9506841e-04, 8.332102e-03, -1.6666654e-01};
constexpr double kCosine[] = {2.443009e-05, -1.3887298e-03, 4.1666646e-02};

/// sin(x + quadrant pi/2); the sign of x isn't read where the quadrant is 1.
Value* turned(IRBuilder<>& b, Value* x, Value* quadrant) {
  Value *size = absolute(b, x), *bits = b.CreateBitCast(size, b.getInt32Ty());
  const Values reduced = either(
      b, b.CreateFCmpOLT(size, number(x, kMostReduced)), [&] { return reduce_small(b, size); },
      [&] { return reduce_large(b, bits); });
  // The table has no bits for infinities and NaN, but some word for each exponent.
  Value* finite = b.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(x->getType()));
  Value* r = b.CreateSelect(finite, reduced[1], llvm::ConstantFP::getNaN(x->getType()));
  Value *n = b.CreateAdd(reduced[0], quadrant), *square = b.CreateFMul(r, r);
  Value* is_odd = b.CreateICmpNE(b.CreateAnd(n, b.getInt32(1)), b.getInt32(0));
  const Values result = either(
      b, is_odd,
      [&] {
        Value* inner = fused(b, fused_polynomial(b, square, kCosine), square, number(r, -0.5));
        return Values{fused(b, inner, square, number(r, 1))};
      },
      [&] { return Values{fused(b, b.CreateFMul(fused_polynomial(b, square, kSine), square), r, r)}; });
  // sin(-x) = -sin(x), and half a turn more changes the sign.
  Value* flip = b.CreateShl(b.CreateAnd(n, b.getInt32(2)), 30);
  Value* sign = b.CreateAnd(b.CreateBitCast(x, b.getInt32Ty()), b.getInt32(1U << 31));
  flip = b.CreateXor(flip, b.CreateSelect(b.CreateICmpEQ(quadrant, b.getInt32(0)), sign, b.getInt32(0)));
  return b.CreateBitCast(b.CreateXor(b.CreateBitCast(result[0], b.getInt32Ty()), flip), b.getFloatTy());
}

}  // namespace

Value* emit_single_sine(IRBuilder<>& b, Value* x, bool cosine) {
  llvm::Type* types[] = {b.getFloatTy(), b.getInt32Ty()};
  llvm::Function* function = shared_function(
      b, "f32_sine", b.getFloatTy(), types, [](IRBuilder<>& b, Values given) { return turned(b, given[0], given[1]); });
  return for_lanes(b, {&x, 1},
                   [&](Values lane) { return b.CreateCall(function, {lane[0], b.getInt32(cosine ? 1 : 0)}); });
}

}  // namespace weft::packages
