#include "packages/math/single_functions.h"

#include <llvm/IR/Intrinsics.h>

#include "codegen/float_ops.h"
#include "codegen/library_math.h"
#include "codegen/pointwise.h"
#include "codegen/vector_math.h"
#include "packages/math/double_double.h"
#include "packages/math/shared_functions.h"
#include "packages/math/single_formulas.h"
#include "packages/math/single_remainder.h"
#include "packages/math/single_turns.h"

namespace weft::packages {
namespace {

using codegen::absolute, codegen::number;
using ir::OpCode;
using llvm::IRBuilder;
using llvm::Value;

llvm::Constant* infinity(Value* like, bool negative = false) {
  return llvm::ConstantFP::getInfinity(like->getType(), negative);
}

/// A constant in two parts.
Two constant(Value* like, double high, double low) { return {number(like, high), number(like, low)}; }

/// log2(m) for m between sqrt(1/2) and sqrt(2): s (c0 + c1 s^2 + ...) for s = (m - 1) / (m + 1) and ck = 2 / ((2 k + 1)
/// log(2)), within 2^-40 of it.
Two log2_near_one(IRBuilder<>& b, Value* m) {
  constexpr double kSeries[] = {0.26230818033218384, 0.32059890031814575, 0.41219857335090637, 0.5770780444145203};
  Value* one = number(m, 1);
  Value *above = b.CreateFAdd(m, one), *distance = b.CreateFSub(m, one);
  Value* lost = b.CreateFSub(m, b.CreateFSub(above, one));
  Value* inverse = b.CreateFDiv(one, above);
  Value* s = b.CreateFMul(distance, inverse);
  Value* rest = fused(b, b.CreateFNeg(s), lost, fused(b, b.CreateFNeg(s), above, distance));
  const Two quotient{s, b.CreateFMul(rest, inverse)};
  const Two square = product(b, quotient, quotient);
  const Two second = constant(m, 0.9617967009544373, -7.028461812552678e-09);
  Two inner = exact_sum(b, second.high, b.CreateFMul(square.high, fused_polynomial(b, square.high, kSeries)));
  inner.low = b.CreateFAdd(inner.low, second.low);
  const Two more = product(b, square, inner);
  const Two first = constant(m, 2.885390043258667, 3.851926067000022e-08);
  Two all = exact_sum(b, first.high, more.high);
  all.low = b.CreateFAdd(all.low, b.CreateFAdd(more.low, first.low));
  return product(b, quotient, all);
}

/// log2 of x = m 2^n, with C's results for 0, infinity and negative numbers in `high`, and 0 in `low` there.
Two log2_in_parts(IRBuilder<>& b, Value* x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3, kOne = 0x3f800000;
  Value* subnormal = b.CreateFCmpOLT(x, number(x, 0x1p-126));
  Value* normal = b.CreateSelect(subnormal, b.CreateFMul(x, number(x, 0x1p24)), x);
  Value* bits = b.CreateAdd(b.CreateBitCast(normal, b.getInt32Ty()), b.getInt32(kOne - kRootHalf));
  Value* exponent = b.CreateSub(b.CreateLShr(bits, 23), b.getInt32(127));
  exponent = b.CreateSub(exponent, b.CreateSelect(subnormal, b.getInt32(24), b.getInt32(0)));
  Value* fraction = b.CreateAnd(bits, b.getInt32((1 << 23) - 1));
  const Two near = log2_near_one(b, b.CreateBitCast(b.CreateAdd(fraction, b.getInt32(kRootHalf)), x->getType()));
  Two sum = exact_sum(b, b.CreateSIToFP(exponent, x->getType()), near.high);
  sum = exact_sum(b, sum.high, b.CreateFAdd(sum.low, near.low));
  Value* zero = number(x, 0);
  Value* edge = b.CreateSelect(b.CreateFCmpOEQ(x, zero), infinity(x, true), llvm::ConstantFP::getNaN(x->getType()));
  edge = b.CreateSelect(b.CreateFCmpOEQ(x, infinity(x)), x, edge);
  Value* usual = b.CreateAnd(b.CreateFCmpOGT(x, zero), b.CreateFCmpOLT(x, infinity(x)));
  return {b.CreateSelect(usual, sum.high, edge), b.CreateSelect(usual, sum.low, zero)};
}

/// The same as a function of the object.
Two call_log2(IRBuilder<>& b, Value* x) {
  llvm::Type* number = b.getFloatTy();
  llvm::Function* function = shared_function(
      b, "f32_log2", llvm::StructType::get(number, number), {&number, 1}, [](IRBuilder<>& b, Values given) {
        const Two result = log2_in_parts(b, given[0]);
        Value* pair = llvm::PoisonValue::get(b.GetInsertBlock()->getParent()->getReturnType());
        return b.CreateInsertValue(b.CreateInsertValue(pair, result.high, 0), result.low, 1);
      });
  Value* pair = b.CreateCall(function, {x});
  return {b.CreateExtractValue(pair, 0), b.CreateExtractValue(pair, 1)};
}

/// (2^f - 1) / f on |f| <= 1/2, within 2^-28 of 2^f: by Lawson's algorithm.
constexpr double kExp2[] = {1.5329235e-04, 1.339189e-03, 9.618503e-03, 5.550358e-02, 2.4022648e-01, 6.931472e-01};

/// 2^(high + low). The low part may be any number where the high one is beyond 200.
Value* exp2_of(IRBuilder<>& b, const Two& x) {
  constexpr double kLeast = -152, kMost = 130, kMagic = 0x1.8p23;  // beyond these results are 0, or infinite
  Value* counts = b.CreateFCmpOLT(absolute(b, x.high), number(x.high, 200));
  Value* low = b.CreateSelect(counts, x.low, number(x.high, 0));
  Value* high = codegen::at_most(b, codegen::at_least(b, x.high, kLeast), kMost);
  Value* shifted = b.CreateFAdd(high, number(high, kMagic));
  Value* f = b.CreateFAdd(b.CreateFSub(high, b.CreateFSub(shifted, number(high, kMagic))), low);
  Value* power = fused(b, fused_polynomial(b, f, kExp2), f, number(f, 1));
  // In two factors, of which the first leaves a normal number: a subnormal result is rounded once.
  Value* n = b.CreateSub(b.CreateBitCast(shifted, b.getInt32Ty()), b.getInt32(0x4b400000));
  Value* half = b.CreateAShr(n, 1);
  const auto times = [&](Value* exponent) {
    Value* bits = b.CreateShl(b.CreateAdd(exponent, b.getInt32(127)), 23);
    power = b.CreateFMul(power, b.CreateBitCast(bits, power->getType()));
  };
  times(half);
  times(b.CreateSub(n, half));
  return power;
}

Value* call_exp2(IRBuilder<>& b, const Two& x) {
  Value* operands[] = {x.high, x.low};
  return call_for_lanes(b, "f32_exp2", operands,
                        [](IRBuilder<>& b, Values given) { return exp2_of(b, {given[0], given[1]}); });
}

Value* log2_of(IRBuilder<>& b, Values given) {
  const Two result = call_log2(b, given[0]);
  return b.CreateFAdd(result.high, result.low);
}

Value* log10_of(IRBuilder<>& b, Values given) {
  const Two result = product(b, call_log2(b, given[0]), constant(given[0], 0.3010300099849701, -1.432098883924482e-08));
  Value* finite = b.CreateFCmpOLT(absolute(b, result.high), infinity(given[0]));
  return b.CreateSelect(finite, b.CreateFAdd(result.high, result.low), result.high);
}

Value* power_of(IRBuilder<>& b, Values given) {
  Value *x = given[0], *y = given[1];
  const Two logarithm = call_log2(b, absolute(b, x));
  Two exponent = exact_product(b, y, logarithm.high);
  exponent.low = fused(b, y, logarithm.low, exponent.low);
  return codegen::emit_power_edges(b, x, y, call_exp2(b, exponent));
}

// (1 + 2 x) exp(x^2) erfc(x) as a polynomial of (x - 2) / (x + 2) for x from 0 to 10.1 (M. M. Shepherd and J. G.
// Laframboise, "Chebyshev approximation of (1 + 2x)exp(x^2)erfc x in 0 <= x < inf", 1981), by Lawson's algorithm,
// within 2^-26 of it.
constexpr double kErfc[] = {-4.047491e-04,  -1.2383161e-03, 1.3140497e-03,  8.6404625e-03,  -8.057903e-03,
                            -5.4207508e-02, 1.6405459e-01,  -1.6603096e-01, -9.2763916e-02, 1.2769784e+00};

Value* erfc_of(IRBuilder<>& b, Values given) {
  constexpr double kMost = 10.1;  // from here on erfc is 0, as rounded
  constexpr double kLog2e = 1.4426950216293335, kLog2eRest = 1.925963033500011e-08;
  Value *x = codegen::at_most(b, absolute(b, given[0]), kMost), *one = number(x, 1), *two = number(x, 2);
  // Both quotients are corrected by what is left, for which the rounded divisors don't count.
  Value* inverse = b.CreateFDiv(one, b.CreateFAdd(x, two));
  Value* t = fused(b, inverse, number(x, -4), one);
  Value* rest = fused(b, b.CreateFNeg(x), t, fused(b, b.CreateFAdd(t, one), number(x, -2), x));
  t = fused(b, inverse, rest, t);
  Value* top = fused_polynomial(b, t, kErfc);
  inverse = b.CreateFDiv(one, fused(b, x, two, one));
  Value* quotient = b.CreateFMul(top, inverse);
  rest = fused(b, b.CreateFMul(quotient, number(x, -2)), x, b.CreateFSub(top, quotient));
  quotient = fused(b, rest, inverse, quotient);
  const Two square = exact_product(b, x, x);
  const Two exponent = product(b, square, constant(x, -kLog2e, -kLog2eRest));
  Value* tail = b.CreateFMul(quotient, call_exp2(b, exponent));
  return b.CreateSelect(b.CreateFCmpOLT(given[0], number(x, 0)), b.CreateFSub(two, tail), tail);
}

/// The larger and the smaller of |x| and |y|.
struct BySize {
  Value* steep;  ///< whether |y| is the larger one
  Value *large, *small;

  BySize(IRBuilder<>& b, Value* x, Value* y) {
    Value *width = absolute(b, x), *height = absolute(b, y);
    steep = b.CreateFCmpOGT(height, width);
    large = b.CreateSelect(steep, height, width);
    small = b.CreateSelect(steep, width, height);
  }
};

/// Scaled by a power of two, so that no square that counts overflows or underflows.
Value* hypotenuse(IRBuilder<>& b, Values given) {
  const BySize sizes(b, given[0], given[1]);
  Value *large = sizes.large, *huge = b.CreateFCmpOGE(large, number(large, 0x1p62));
  Value* tiny = b.CreateFCmpOLT(large, number(large, 0x1p-50));
  const auto chosen = [&](double of_huge, double of_tiny) {
    return b.CreateSelect(huge, number(large, of_huge), b.CreateSelect(tiny, number(large, of_tiny), number(large, 1)));
  };
  Value *scale = chosen(0x1p-70, 0x1p100), *back = chosen(0x1p70, 0x1p-100);
  Value *x = b.CreateFMul(large, scale), *y = b.CreateFMul(sizes.small, scale);
  Value* root = b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, fused(b, x, x, b.CreateFMul(y, y)));
  Value* infinite = b.CreateOr(b.CreateFCmpOEQ(large, infinity(x)), b.CreateFCmpOEQ(sizes.small, infinity(x)));
  return b.CreateSelect(infinite, infinity(x), b.CreateFMul(root, back));
}

// (atan(z) - z) / z^3 as a polynomial of z^2 on [0, 1], by Lawson's algorithm, within 2^-28 of atan(z).
constexpr double kArcTangent[] = {-1.7875476e-03, 1.0887361e-02,  -3.1127002e-02, 5.7906546e-02, -8.400475e-02,
                                  1.0951175e-01,  -1.4264052e-01, 1.9998531e-01,  -3.33333e-01};

/// atan2(y, x).
Value* arc_tangent(IRBuilder<>& b, Values given) {
  constexpr double kPi = 3.1415927410125732, kPiRest = -8.742277657347586e-08;
  Value *y = given[0], *x = given[1], *zero = number(x, 0);
  const BySize sizes(b, x, y);
  // 1 of two infinities, and 0 of two zeros.
  Value* z = b.CreateFDiv(sizes.small, sizes.large);
  z = b.CreateSelect(b.CreateFCmpOEQ(sizes.small, sizes.large), number(x, 1), z);
  z = b.CreateSelect(b.CreateFCmpOEQ(sizes.large, zero), zero, z);
  Value* square = b.CreateFMul(z, z);
  Value* angle = fused(b, b.CreateFMul(fused_polynomial(b, square, kArcTangent), square), z, z);
  const auto from = [&](double turn) {
    return b.CreateFSub(number(x, kPi * turn), b.CreateFSub(angle, number(x, kPiRest * turn)));
  };
  angle = b.CreateSelect(sizes.steep, from(0.5), angle);
  Value* left = b.CreateICmpSLT(b.CreateBitCast(x, b.getInt32Ty()), b.getInt32(0));
  angle = b.CreateCopySign(b.CreateSelect(left, from(1), angle), y);
  return b.CreateSelect(b.CreateFCmpUNO(x, y), llvm::ConstantFP::getNaN(x->getType()), angle);
}

/// The larger plus log(1 + exp(-distance)).
Value* log_add_exp(IRBuilder<>& b, Values given) {
  Value *x = given[0], *y = given[1];
  Value* distance = b.CreateSelect(b.CreateFCmpOEQ(x, y), number(x, 0), absolute(b, b.CreateFSub(x, y)));
  Value* power = codegen::emit_exp(b, b.CreateFNeg(distance));
  Value* more = codegen::emit_library_function(b, OpCode::kLog1p, {&power, 1});
  return b.CreateFAdd(codegen::emit_maximum(b, x, y), more);
}

}  // namespace

Value* emit_single_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  switch (code) {
    case OpCode::kSin:
    case OpCode::kCos:
      return emit_single_sine(b, operands[0], code == OpCode::kCos);
    case OpCode::kRem:
      return emit_single_remainder(b, operands[0], operands[1]);
    case OpCode::kLog2:
      return call_for_lanes(b, "f32_log2_rounded", operands, log2_of);
    case OpCode::kLog10:
      return call_for_lanes(b, "f32_log10", operands, log10_of);
    case OpCode::kPow:
      return call_for_lanes(b, "f32_power", operands, power_of);
    case OpCode::kErfc:
      return call_for_lanes(b, "f32_erfc", operands, erfc_of);
    case OpCode::kHypot:
      return call_for_lanes(b, "f32_hypotenuse", operands, hypotenuse);
    case OpCode::kAtan2:
      return call_for_lanes(b, "f32_arc_tangent", operands, arc_tangent);
    case OpCode::kLogaddexp:
      return call_for_lanes(b, "f32_log_add_exp", operands, log_add_exp);
    default:
      return nullptr;
  }
}

}  // namespace weft::packages
