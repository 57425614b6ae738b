#include "codegen/library_math.h"

#include <llvm/IR/Intrinsics.h>

#include <span>

#include "codegen/float_ops.h"
#include "codegen/pointwise.h"
#include "codegen/vector_math.h"

namespace weft::codegen {
namespace {

using ir::OpCode;
using llvm::IRBuilder;
using llvm::Value;

/// log(1 + x): the rounding of 1 + x is made good by x / ((1 + x) - 1).
Value* log1p(IRBuilder<>& b, Value* x) {
  Value* one = number(x, 1);
  Value* shifted = b.CreateFAdd(x, one);
  Value* rounded = b.CreateFSub(shifted, one);
  Value* corrected = b.CreateFMul(emit_log(b, shifted), b.CreateFDiv(x, rounded));
  Value* infinite = b.CreateFCmpOEQ(x, llvm::ConstantFP::getInfinity(x->getType()));
  return b.CreateSelect(b.CreateFCmpOEQ(rounded, number(x, 0)), x, b.CreateSelect(infinite, x, corrected));
}

// On |r| <= pi/4, by Taylor's series.
constexpr double kSine[] = {-7.6471637318198164759e-13, 1.6059043836821614599e-10, -2.5052108385441718775e-8,
                            2.7557319223985890653e-6,   -1.9841269841269841270e-4, 8.3333333333333333333e-3,
                            -1.6666666666666666667e-1};
constexpr double kCosine[] = {4.7794773323873852974e-14,
                              -1.1470745597729724714e-11,
                              2.0876756987868098979e-9,
                              -2.7557319223985890653e-7,
                              2.4801587301587301587e-5,
                              -1.3888888888888888889e-3,
                              4.1666666666666666667e-2,
                              -0.5,
                              1.0};

Value* sine(IRBuilder<>& b, Value* x, bool cosine) { return emit_sine(b, emit_turn(b, x, false), cosine); }

/// exp(y log|x|), with C's results at the edges.
Value* power(IRBuilder<>& b, Value* x, Value* y) {
  return emit_power_edges(b, x, y, emit_exp(b, b.CreateFMul(y, emit_log(b, absolute(b, x)))));
}

// erfc(x) = t exp(-x^2 + P(t)) with t = 2 / (2 + x), for 0.5 <= x <= 10.5 within 2^-34 of it: fitted at Chebyshev's
// points.
constexpr double kErfc[] = {0.08430708862646706,  -0.7862816751834665, 2.8745070030109874, -5.543610338841705,
                            6.176247660259332,    -4.099395534560706,  1.8416195590915119, -0.7808728206915272,
                            0.062021339903224094, 0.05961576502856419, 0.3774962171547182, 0.9998449677768952,
                            -1.2655078243910238};
// erf(x) = x + x P(x^2) / Q(x^2) near 0 (fdlibm).
constexpr double kErfP[] = {-2.37630166566501626084e-05, -5.77027029648944159157e-03, -2.84817495755985104766e-02,
                            -3.25042107247001499370e-01, 1.28379167095512558561e-01};
constexpr double kErfQ[] = {-3.96022827877536812320e-06, 1.32494738004321644526e-04, 5.08130628187576562776e-03,
                            6.50222499887672944485e-02,  3.97917223959155352819e-01, 1.0};

Value* erfc(IRBuilder<>& b, Value* x) {
  Value *one = number(x, 1), *two = number(x, 2), *size = absolute(b, x);
  Value* square = b.CreateFMul(x, x);
  Value* quotient = b.CreateFDiv(polynomial(b, square, kErfP), polynomial(b, square, kErfQ));
  Value* near = fma(b, x, quotient, x);
  Value* t = b.CreateFDiv(two, b.CreateFAdd(size, two));
  Value* tail = b.CreateFMul(t, emit_exp(b, b.CreateFSub(polynomial(b, t, kErfc), square)));
  tail = b.CreateSelect(b.CreateFCmpOGT(size, number(x, 10.5)), number(x, 0), tail);
  Value* far = b.CreateSelect(b.CreateFCmpOLT(x, number(x, 0)), b.CreateFSub(two, tail), tail);
  return b.CreateSelect(b.CreateFCmpOLT(size, number(x, 0.5)), b.CreateFSub(one, near), far);
}

// atan(z) / z as a polynomial of z^2 on [0, 1], within 2^-36 of it: fitted at Chebyshev's points.
constexpr double kArcTangent[] = {
    0.0004301651244782404, -0.003261487912020321, 0.011602327876746317, -0.026271580854150458, 0.04390287415848563,
    -0.060385487610183516, 0.0750223148202843,    -0.090511372780551,   0.11105656193149395,   -0.1428526249266964,
    0.1999998035368019,    -0.3333333299505001,   0.9999999999902918};

/// The smaller and the larger of |y| and |x|, whose ratio lies in 0..1.
struct BySize {
  Value* steep;  ///< whether |y| is the larger one
  Value *large, *small;

  BySize(IRBuilder<>& b, Value* y, Value* x) {
    Value *width = absolute(b, x), *height = absolute(b, y);
    steep = b.CreateFCmpOGT(height, width);
    large = b.CreateSelect(steep, height, width);
    small = b.CreateSelect(steep, width, height);
  }
};

/// small / large; 1 of two infinities, and 0 of two zeros.
Value* ratio(IRBuilder<>& b, const BySize& sizes) {
  Value *large = sizes.large, *small = sizes.small;
  Value* z = b.CreateFDiv(small, large);
  z = b.CreateSelect(b.CreateFCmpOEQ(small, large), number(z, 1), z);
  return b.CreateSelect(b.CreateFCmpOEQ(large, number(z, 0)), number(z, 0), z);
}

/// atan2(y, x) of the angle whose tangent is ratio(). `from(turn, angle)` is pi * turn - angle.
template <typename From>
Value* in_quadrant(IRBuilder<>& b, Value* y, Value* x, Value* steep, Value* angle, From from) {
  angle = b.CreateSelect(steep, from(0.5, angle), angle);
  Value* left = b.CreateFCmpOLT(b.CreateCopySign(number(x, 1), x), number(x, 0));
  angle = b.CreateSelect(left, from(1.0, angle), angle);
  angle = b.CreateCopySign(angle, y);
  return b.CreateSelect(b.CreateFCmpUNO(x, y), llvm::ConstantFP::getNaN(x->getType()), angle);
}

Value* arc_tangent(IRBuilder<>& b, Value* y, Value* x) {
  constexpr double kPi = 3.14159265358979323846;
  const BySize sizes(b, y, x);
  Value* z = ratio(b, sizes);
  Value* acute = b.CreateFMul(z, polynomial(b, b.CreateFMul(z, z), kArcTangent));
  return in_quadrant(b, y, x, sizes.steep, acute,
                     [&](double turn, Value* angle) { return b.CreateFSub(number(x, kPi * turn), angle); });
}

Value* hypotenuse(IRBuilder<>& b, Value* x, Value* y) {
  Value* infinity = llvm::ConstantFP::getInfinity(x->getType());
  Value* squares = b.CreateFAdd(b.CreateFMul(x, x), b.CreateFMul(y, y));
  Value* infinite = b.CreateOr(b.CreateFCmpOEQ(absolute(b, x), infinity), b.CreateFCmpOEQ(absolute(b, y), infinity));
  return b.CreateSelect(infinite, infinity, b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, squares));
}

/// The larger plus log(1 + exp(-distance)).
Value* log_add_exp(IRBuilder<>& b, Value* x, Value* y) {
  Value* larger = emit_maximum(b, x, y);
  Value* distance = b.CreateSelect(b.CreateFCmpOEQ(x, y), number(x, 0), absolute(b, b.CreateFSub(x, y)));
  return b.CreateFAdd(larger, log1p(b, emit_exp(b, b.CreateFNeg(distance))));
}

// erf(x) = x + x P(x^2) for |x| < 0.9, else 1 - exp(-t Q(t)) with t = |x| up to 4.1, from where it is 1: fitted by
// Lawson's iteration, within 2^-26 of the result.
constexpr double kErfNear[] = {-0.0006090358003344501, 0.005011962412630903, -0.026778908621516294,
                               0.11282140803140693,    -0.37612523275283516, 0.12837915379712064};
constexpr double kErfFar[] = {-0.000214595904405369, 0.003219982226286444, -0.02290605108235244,
                              0.10528688331961417,   0.635699348092447,    1.1285199583266867};

/// log(1 + x) of f32, in f32, which softplus is made of. The rounding error of 1 + x is corrected for after the
/// logarithm.
Value* narrow_log1p(IRBuilder<>& b, Value* x) {
  Value *one = number(x, 1), *shifted = b.CreateFAdd(x, one);
  Value* lost = b.CreateFSub(x, b.CreateFSub(shifted, one));
  Value* result = b.CreateFAdd(emit_log(b, shifted), b.CreateFDiv(lost, shifted));
  Value* infinite = b.CreateFCmpOEQ(x, llvm::ConstantFP::getInfinity(x->getType()));
  Value* itself = b.CreateOr(infinite, b.CreateFCmpOEQ(shifted, one));
  Value* pole = b.CreateFCmpOEQ(x, number(x, -1));
  result = b.CreateSelect(pole, llvm::ConstantFP::getInfinity(x->getType(), true), result);
  return b.CreateSelect(itself, x, result);
}

/// erf of f32, in f32: GELU is made of it.
Value* narrow_erf(IRBuilder<>& b, Value* x) {
  Value *size = absolute(b, x), *most = number(x, 4.1);
  Value* near = fma(b, x, polynomial(b, b.CreateFMul(x, x), kErfNear), x);
  Value* t = b.CreateSelect(b.CreateFCmpOGT(size, most), most, size);
  Value* tail = emit_exp(b, b.CreateFNeg(b.CreateFMul(t, polynomial(b, t, kErfFar))));
  Value* far = b.CreateCopySign(b.CreateFSub(number(x, 1), tail), x);
  return b.CreateSelect(b.CreateFCmpOLT(size, number(x, 0.9)), near, far);
}

/// The arc tangent of z in 0..1: fdlibm's, with its steps of 0, 1/2 and 1 in two parts, since not only a pole is near.
Value* double_arc_tangent(IRBuilder<>& b, Value* z) {
  constexpr double kSeries[] = {1.62858201153657823623e-02,  -3.65315727442169155270e-02, 4.97687799461593236017e-02,
                                -5.83357013379057348645e-02, 6.66107313738753120669e-02,  -7.69187620504482999495e-02,
                                9.09088713343650656196e-02,  -1.11111104054623557880e-01, 1.42857142725034663711e-01,
                                -1.99999999998764832476e-01, 3.33333333333329318027e-01};
  Value *one = number(z, 1), *two = number(z, 2), *zero = number(z, 0);
  Value *low = b.CreateFCmpOLT(z, number(z, 0.4375)), *high = b.CreateFCmpOGE(z, number(z, 0.6875));
  Value* middle = b.CreateFDiv(b.CreateFSub(b.CreateFMul(two, z), one), b.CreateFAdd(two, z));
  Value* end = b.CreateFDiv(b.CreateFSub(z, one), b.CreateFAdd(z, one));
  const auto of_three = [&](Value* first, Value* second, Value* third) {
    return b.CreateSelect(low, first, b.CreateSelect(high, third, second));
  };
  Value* r = of_three(z, middle, end);
  Value* square = b.CreateFMul(r, r);
  Value* correction = b.CreateFMul(r, b.CreateFMul(square, polynomial(b, square, kSeries)));
  Value* turn = of_three(zero, number(z, 4.63647609000806093515e-01), number(z, 7.85398163397448278999e-01));
  Value* rest = of_three(zero, number(z, 2.26987774529616870924e-17), number(z, 3.06161699786838301793e-17));
  return b.CreateFSub(turn, b.CreateFSub(b.CreateFSub(correction, rest), r));
}

/// The same with |y| / |x| or its reciprocal in 0..1, and the angle in its quadrant.
Value* double_atan2(IRBuilder<>& b, Value* y, Value* x) {
  constexpr double kPi = 3.14159265358979311600, kPiRest = 1.22464679914735317636e-16;
  const BySize sizes(b, y, x);
  Value* acute = double_arc_tangent(b, ratio(b, sizes));
  return in_quadrant(b, y, x, sizes.steep, acute, [&](double turn, Value* angle) {
    return b.CreateFSub(number(x, kPi * turn), b.CreateFSub(angle, number(x, kPiRest * turn)));
  });
}

/// Scaled by the larger one, so that no square overflows.
Value* double_hypotenuse(IRBuilder<>& b, Value* x, Value* y) {
  Value* infinity = llvm::ConstantFP::getInfinity(x->getType());
  const BySize sizes(b, y, x);
  Value* ratio = b.CreateFDiv(sizes.small, sizes.large);
  ratio = b.CreateSelect(b.CreateFCmpOEQ(sizes.large, number(x, 0)), number(x, 0), ratio);
  Value* root = b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, fma(b, ratio, ratio, number(x, 1)));
  Value* result = b.CreateFMul(sizes.large, root);
  result = b.CreateSelect(b.CreateFCmpUNO(x, y), llvm::ConstantFP::getNaN(x->getType()), result);
  return b.CreateSelect(
      b.CreateOr(b.CreateFCmpOEQ(absolute(b, x), infinity), b.CreateFCmpOEQ(absolute(b, y), infinity)), infinity,
      result);
}

Value* emit_wide(IRBuilder<>& b, OpCode code, Value* x, Value* y) {
  constexpr double kLog2e = 1.4426950408889634, kLog10e = 0.43429448190325182765;
  switch (code) {
    case OpCode::kLog2:
      return b.CreateFMul(emit_log(b, x), number(x, kLog2e));
    case OpCode::kLog10:
      return b.CreateFMul(emit_log(b, x), number(x, kLog10e));
    case OpCode::kSin:
      return sine(b, x, false);
    case OpCode::kCos:
      return sine(b, x, true);
    case OpCode::kErfc:
      return erfc(b, x);
    case OpCode::kPow:
      return power(b, x, y);
    case OpCode::kAtan2:
      return arc_tangent(b, x, y);
    case OpCode::kHypot:
      return hypotenuse(b, x, y);
    case OpCode::kLogaddexp:
      return log_add_exp(b, x, y);
    default:
      return nullptr;
  }
}

}  // namespace

Turn emit_turn(IRBuilder<>& b, Value* x, bool precise) {
  constexpr double kTwoByPi = 0.63661977236758134308, kMagic = 0x1.8p52;
  // pi/2 in parts of 33 bits (fdlibm), of which the products by n are exact, and a last part of 53. What is left of x
  // after a part is exact, too, where the next one cancels most of it.
  constexpr double kFirst = 1.57079632673412561417e+00, kSecond = 6.07710050630396597660e-11;
  constexpr double kRest = 2.02226624879595063154e-21;  // of kThird and kLast
  constexpr double kThird = 2.02226624871116645580e-21, kLast = 8.47842766036889956997e-32;
  // Adding 1.5 2^52 rounds to an integer, which then stands in the low bits.
  Value* shifted = fma(b, x, number(x, kTwoByPi), number(x, kMagic));
  Value* n = b.CreateFSub(shifted, number(x, kMagic));
  Value* rest = fma(b, n, number(x, -kFirst), x);
  if (precise) {
    Value* over = b.CreateFMul(n, number(x, kLast));  // what is to be subtracted yet: of -0 nothing, with the sign +
    for (double part : {kSecond, kThird}) {
      Value *product = b.CreateFMul(n, number(x, part)), *less = b.CreateFSub(rest, product);
      over = b.CreateFAdd(over, b.CreateFAdd(b.CreateFSub(less, rest), product));
      rest = less;
    }
    rest = b.CreateFSub(rest, over);
  } else {
    rest = fma(b, n, number(x, -kSecond), rest);
    rest = fma(b, n, number(x, -kRest), rest);
  }
  return {rest, b.CreateBitCast(shifted, x->getType()->getWithNewType(b.getInt64Ty()))};
}

Value* emit_sine(IRBuilder<>& b, const Turn& turn, bool cosine) {
  Value *r = turn.rest, *quadrant = turn.quadrant;
  Value* square = b.CreateFMul(r, r);
  Value* s = fma(b, b.CreateFMul(polynomial(b, square, kSine), square), r, r);
  s = b.CreateSelect(b.CreateFCmpOEQ(square, number(r, 0)), r, s);  // of -0 too
  Value* c = polynomial(b, square, kCosine);
  const auto integer = [&](int64_t value) { return llvm::ConstantInt::getSigned(quadrant->getType(), value); };
  if (cosine) quadrant = b.CreateAdd(quadrant, integer(1));
  Value* is_odd = b.CreateICmpNE(b.CreateAnd(quadrant, integer(1)), integer(0));
  Value* sign = b.CreateShl(b.CreateAnd(quadrant, integer(2)), integer(62));
  Value* result = b.CreateBitCast(b.CreateSelect(is_odd, c, s), quadrant->getType());
  return b.CreateBitCast(b.CreateXor(result, sign), r->getType());
}

Value* emit_power_edges(IRBuilder<>& b, Value* x, Value* y, Value* result) {
  Value *zero = number(x, 0), *one = number(x, 1), *size = absolute(b, x);
  Value* whole = b.CreateFCmpOEQ(round_even(b, y), y);
  Value* half = b.CreateFMul(y, number(y, 0.5));
  Value* odd = b.CreateAnd(whole, b.CreateFCmpONE(round_even(b, half), half));
  result = b.CreateSelect(odd, b.CreateCopySign(result, x), result);
  Value* negative =
      b.CreateAnd(b.CreateFCmpOLT(x, zero), b.CreateFCmpONE(size, llvm::ConstantFP::getInfinity(x->getType())));
  result = b.CreateSelect(b.CreateAnd(negative, b.CreateNot(whole)), llvm::ConstantFP::getNaN(x->getType()), result);
  Value* infinite = b.CreateFCmpOEQ(absolute(b, y), llvm::ConstantFP::getInfinity(y->getType()));
  result = b.CreateSelect(b.CreateAnd(infinite, b.CreateFCmpOEQ(size, one)), one, result);
  return b.CreateSelect(b.CreateOr(b.CreateFCmpOEQ(y, zero), b.CreateFCmpOEQ(x, one)), one, result);
}

Value* emit_library_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  if (is_narrow(code)) return code == OpCode::kErf ? narrow_erf(b, operands[0]) : narrow_log1p(b, operands[0]);
  llvm::Type* narrow = operands[0]->getType();
  llvm::Type* wide = narrow->getWithNewType(b.getDoubleTy());
  Value* x = b.CreateFPExt(operands[0], wide);
  Value* y = operands.size() > 1 ? b.CreateFPExt(operands[1], wide) : nullptr;
  Value* result = emit_wide(b, code, x, y);
  return result != nullptr ? b.CreateFPTrunc(result, narrow) : nullptr;
}

Value* emit_double_function(IRBuilder<>& b, OpCode code, std::span<Value* const> operands) {
  switch (code) {
    case OpCode::kLog1p:
      return log1p(b, operands[0]);
    case OpCode::kAtan2:
      return double_atan2(b, operands[0], operands[1]);
    case OpCode::kHypot:
      return double_hypotenuse(b, operands[0], operands[1]);
    case OpCode::kLog2:
    case OpCode::kLog10:
    case OpCode::kLogaddexp:
      return emit_wide(b, code, operands[0], operands.size() > 1 ? operands[1] : nullptr);
    default:
      return nullptr;
  }
}

}  // namespace weft::codegen
