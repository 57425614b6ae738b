#include "codegen/vector_math.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <span>
#include <vector>

#include "codegen/float_ops.h"
#include "codegen/isa.h"

namespace weft::codegen {
namespace {

using llvm::IRBuilder;
using llvm::Value;

bool is_double(Value* x) { return x->getType()->getScalarType()->isDoubleTy(); }

/// The same polynomial, highest coefficient first, by Estrin's scheme: combines pairs of terms until three are left.
/// Except for the powers of x it takes as many operations, but fewer of them wait for each other.
Value* estrin(IRBuilder<>& b, Value* x, std::span<const double> coefficients) {
  std::vector<Value*> terms;
  for (double c : coefficients) terms.push_back(number(x, c));
  while (terms.size() > 3) {
    std::vector<Value*> pairs;
    const size_t alone = terms.size() % 2;  // the highest term has no partner
    if (alone == 1) pairs.push_back(terms[0]);
    for (size_t i = alone; i < terms.size(); i += 2) pairs.push_back(fma(b, terms[i], x, terms[i + 1]));
    terms = std::move(pairs);
    x = b.CreateFMul(x, x);
  }
  Value* sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = fma(b, sum, x, terms[i]);
  return sum;
}

constexpr double kLog2e = 1.4426950408889634;

/// The constants of exp for a type.
struct ExpFormat {
  unsigned bits, mantissa;
  int bias;      // of exponents
  double magic;  // adding it rounds to an integer, which then stands in the low mantissa bits
  double ln2_high, ln2_low, low, high;
  std::span<const double> polynomial;  // approximates (exp(r) - 1 - r) / r^2
};

constexpr double kExp32[] = {1.9875691500E-4, 1.3981999507E-3, 8.3334519073E-3,
                             4.1665795894E-2, 1.6666665459E-1, 5.0000001201E-1};
constexpr double kExp64[] = {1.6059043836821613e-10, 2.08767569878681e-09,   2.505210838544172e-08,
                             2.755731922398589e-07,  2.7557319223985893e-06, 2.48015873015873e-05,
                             1.984126984126984e-04,  1.3888888888888889e-03, 8.333333333333333e-03,
                             4.1666666666666664e-02, 1.6666666666666666e-01, 0.5};
const ExpFormat kFormat32{32, 23, 127, 12582912.0, 0.693359375, -2.12194440e-4, -105.0, 90.0, kExp32};
const ExpFormat kFormat64{64,     52,    1023,  6755399441055744.0, 6.93145751953125E-1, 1.42860682030941723212E-6,
                          -746.0, 711.0, kExp64};

/// Whether x is one register of AVX-512, which can scale by a power of two and estimate reciprocals.
bool is_zmm(const IRBuilder<>& b, Value* x) {
  return x->getType()->getPrimitiveSizeInBits() == 512 && vector_isa(b).avx512;
}

/// x 2^n for an integer n; a subnormal result is rounded once.
Value* scale(IRBuilder<>& b, Value* x, Value* n) {
  const auto code =
      is_double(x) ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_512 : llvm::Intrinsic::x86_avx512_mask_scalef_ps_512;
  Value* all = is_double(x) ? b.getInt8(0xff) : b.getInt16(0xffff);
  constexpr uint32_t kRoundAsSet = 4;
  return b.CreateIntrinsic(code, {}, {x, n, llvm::Constant::getNullValue(x->getType()), all, b.getInt32(kRoundAsSet)});
}

/// 1 / x of f32, within 2^-14.
Value* reciprocal(IRBuilder<>& b, Value* x) {
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_512, {},
                           {x, llvm::Constant::getNullValue(x->getType()), b.getInt16(0xffff)});
}

struct NearestPower {
  Value *shifted, *n;  ///< n + offset in the low bits of the mantissa, and n as a number
};

/// The integer nearest to x * factor, by default to x / ln 2.
NearestPower nearest_power(IRBuilder<>& b, Value* x, const ExpFormat& format, int offset = 0, double factor = kLog2e) {
  Value* magic = number(x, format.magic + offset);
  Value* shifted = fma(b, x, number(x, factor), magic);
  return {shifted, b.CreateFSub(shifted, magic)};
}

/// 2^(n - format.bias), where the low bits of the argument hold n, the exponent of a normal number. The bits above n
/// are shifted out.
Value* power_of_two(IRBuilder<>& b, Value* n, const ExpFormat& format, llvm::Type* type) {
  return b.CreateBitCast(b.CreateShl(n, llvm::ConstantInt::get(n->getType(), format.mantissa)), type);
}

/// x - n ln 2.
Value* remainder(IRBuilder<>& b, Value* x, Value* n, const ExpFormat& format) {
  return fma(b, n, number(x, -format.ln2_low), fma(b, n, number(x, -format.ln2_high), x));
}

/// exp(r) - 1 for |r| <= ln(2)/2.
Value* expm1_near_zero(IRBuilder<>& b, Value* r, const ExpFormat& format) {
  return fma(b, estrin(b, r, format.polynomial), b.CreateFMul(r, r), r);
}

/// exp of an x in the format's range. `is_normal` promises that 2^n is normal for the n nearest to x / ln 2. Without
/// that promise 2^n is multiplied in as two factors, and the product with the first is never subnormal. `rest`, if it
/// isn't null, is added to x.
Value* exp_within(IRBuilder<>& b, Value* x, bool is_normal = false, Value* rest = nullptr) {
  const ExpFormat& format = is_double(x) ? kFormat64 : kFormat32;
  llvm::Type* type = x->getType();
  llvm::Type* integers = type->getWithNewType(b.getIntNTy(format.bits));
  const bool in_halves = !is_zmm(b, x) && !is_normal;
  const auto [shifted, n] = nearest_power(b, x, format, in_halves ? 2 * format.bias : 0);
  Value* r = remainder(b, x, n, format);
  if (rest != nullptr) r = b.CreateFAdd(r, rest);
  Value* p = expm1_near_zero(b, r, format);
  if (is_zmm(b, x)) return scale(b, b.CreateFAdd(p, number(x, 1.0)), n);
  Value* bits = b.CreateBitCast(shifted, integers);
  if (is_normal) {  // added to the exponent
    Value* exponent = b.CreateShl(bits, llvm::ConstantInt::get(integers, format.mantissa));
    return b.CreateBitCast(b.CreateAdd(b.CreateBitCast(b.CreateFAdd(p, number(x, 1.0)), integers), exponent), type);
  }
  Value* half = b.CreateLShr(bits, llvm::ConstantInt::get(integers, 1));
  Value* power = power_of_two(b, half, format, type);
  return b.CreateFMul(fma(b, power, p, power), power_of_two(b, b.CreateSub(bits, half), format, type));
}

constexpr double kTanhP64[] = {-9.64399179425052238628E-1, -9.92877231001918586564E1, -1.61468768441708447952E3};
constexpr double kTanhQ64[] = {1.0, 1.12811678491632931402E2, 2.23548839060100448583E3, 4.84406305325125486048E3};

/// The constants of log for a type.
struct LogFormat {
  unsigned bits, mantissa;
  uint64_t root_half, one;        // the bits of sqrt(1/2) and of 1
  double smallest_normal, raise;  // raise = 2^mantissa
  double magic;                   // added to an integer, it makes a float with that integer in its low mantissa bits
};
const LogFormat kLog32{32, 23, 0x3f3504f3, 0x3f800000, 0x1p-126, 0x1p23, 12582912.0};
const LogFormat kLog64{64, 52, 0x3fe6a09e667f3bcd, 0x3ff0000000000000, 0x1p-1022, 0x1p52, 6755399441055744.0};

constexpr double kLogarithm32[] = {7.0376836292E-2,  -1.1514610310E-1, 1.1676998740E-1,
                                   -1.2420140846E-1, 1.4249322787E-1,  -1.6668057665E-1,
                                   2.0000714765E-1,  -2.4999993993E-1, 3.3333331174E-1};
constexpr double kLogP64[] = {1.01875663804580931796E-4, 4.97494994976747001425E-1, 4.70579119878881725854E0,
                              1.44989225341610930846E1,  1.79368678507819816313E1,  7.70838733755885391666E0};
constexpr double kLogQ64[] = {1.0,
                              1.12873587189167450590E1,
                              4.52279145837532221105E1,
                              8.29875266912776603211E1,
                              7.11544750618563894466E1,
                              2.31251620126765340583E1};

/// log of a positive normal x = 2^n (1 + r) with 1 + r in [sqrt(1/2), sqrt(2)); `fewer` is taken from n.
Value* log_of_normal(IRBuilder<>& b, Value* x, Value* fewer) {
  const LogFormat& format = is_double(x) ? kLog64 : kLog32;
  llvm::Type* integers = x->getType()->getWithNewType(b.getIntNTy(format.bits));
  auto integer = [&](uint64_t value) { return llvm::ConstantInt::get(integers, value); };
  Value* bits = b.CreateAdd(b.CreateBitCast(x, integers), integer(format.one - format.root_half));
  Value* exponent = b.CreateSub(b.CreateLShr(bits, format.mantissa), integer(format.one >> format.mantissa));
  Value* magic = number(x, format.magic);
  Value* n =
      b.CreateFSub(b.CreateBitCast(b.CreateAdd(exponent, b.CreateBitCast(magic, integers)), x->getType()), magic);
  n = b.CreateFSub(n, fewer);
  Value* low = b.CreateAnd(bits, integer((uint64_t{1} << format.mantissa) - 1));
  Value* r = b.CreateFSub(b.CreateBitCast(b.CreateAdd(low, integer(format.root_half)), x->getType()), number(x, 1.0));
  Value* square = b.CreateFMul(r, r);
  Value* p = is_double(x) ? b.CreateFDiv(polynomial(b, r, kLogP64), polynomial(b, r, kLogQ64))
                          : polynomial(b, r, kLogarithm32);
  Value* y = b.CreateFMul(b.CreateFMul(p, square), r);
  y = fma(b, n, number(x, -2.121944400546905827679e-4), y);
  y = fma(b, square, number(x, -0.5), y);
  return fma(b, n, number(x, 0.693359375), b.CreateFAdd(r, y));
}

// In both functions below the quotient q = top / bottom takes one step of Newton's method from the reciprocal's
// estimate (whose error squared is 2^-28). Its residual top - q bottom starts with the largest terms, which nearly
// cancel each other where the result is close to 1. So 1 - q, and with it the derivative, is as accurate as f32 allows.

/// 2^m / (2^m + exp(-r)) for an f32 zmm, with m = round(x / ln 2) and r = x - m ln 2: neither power overflows for an x
/// that is not far from the range where sigmoid is neither 0 nor 1.
Value* sigmoid_by_estimate(IRBuilder<>& b, Value* x) {
  const ExpFormat& format = kFormat32;
  constexpr double kAlmostOne = 20;  // 1 - sigmoid(20) is less than half of the last place
  x = at_least(b, at_most(b, x, kAlmostOne), format.low);
  Value* m = nearest_power(b, x, format).n;
  Value* r = fma(b, m, number(x, format.ln2_high), b.CreateFNeg(x));
  r = fma(b, m, number(x, format.ln2_low), r);
  Value* power = scale(b, number(x, 1.0), m);
  Value* p = expm1_near_zero(b, r, format);
  Value* estimate = reciprocal(b, b.CreateFAdd(b.CreateFAdd(p, power), number(x, 1.0)));
  Value* q = b.CreateFMul(power, estimate);
  Value* minus = b.CreateFNeg(q);
  Value* residual = b.CreateFSub(fma(b, minus, p, fma(b, minus, power, power)), q);
  return fma(b, residual, estimate, q);
}

/// e / (e + 2) with e = exp(2|x|) - 1 = 2^n (exp(r) - 1) + (2^n - 1) for an f32 zmm.
Value* tanh_by_estimate(IRBuilder<>& b, Value* x) {
  const ExpFormat& format = kFormat32;
  constexpr double kAlmostOne = 20;
  Value* size = absolute(b, x);
  Value* doubled = at_most(b, b.CreateFAdd(size, size), kAlmostOne);
  Value* n = nearest_power(b, doubled, format).n;
  Value* power = scale(b, number(x, 1.0), n);
  Value* e =
      fma(b, power, expm1_near_zero(b, remainder(b, doubled, n, format), format), b.CreateFSub(power, number(x, 1.0)));
  Value* estimate = reciprocal(b, b.CreateFAdd(e, number(x, 2.0)));
  Value* q = b.CreateFMul(e, estimate);
  Value* residual = fma(b, q, number(x, -2.0), fma(b, b.CreateFNeg(q), e, e));
  return b.CreateCopySign(fma(b, residual, estimate, q), x);
}

// Without these instructions the power of two comes from the number that was added to round: the integer in the low
// bits of its mantissa is shifted into the exponent. The one division isn't corrected for the rounding of its
// denominator. That would take two multiply-adds and more, an eighth of the time of an LSTM's elementwise work on Zen
// 3, for less than a unit in the last place.

// Polynomials of (exp(r) - 1 - r) / r^2 on |r| <= ln(2)/2, minimax by Lawson's algorithm: weighted least squares whose
// weights grow where the error is large. Relative to exp(r), the error of kExpOfRest is 2^-28. kTanhOfRest is written
// for s = r / 2, (exp(2 s) - 1) / 2 = s + s^2 P(s), and a random search from there made tanh's largest error as small
// as it found, 2.46 units in the last place, with fused multiply-adds and without.
constexpr double kExpOfRest[] = {1.38145400673e-3, 8.36874510868e-3, 4.16683907857e-2, 0.16666520399, 0.499999934321};
constexpr double kTanhOfRest[] = {4.44297865e-2, 0.133855388, 0.333325267, 0.666661203, 1.00000024};

/// 2^n for the n + bias in the low bits of an f32.
Value* power_of_f32(IRBuilder<>& b, Value* shifted) {
  Value* bits = b.CreateBitCast(shifted, shifted->getType()->getWithNewType(b.getInt32Ty()));
  return power_of_two(b, bits, kFormat32, shifted->getType());
}

constexpr double kSigmoidLow = -105, kSigmoidHigh = 20;  // here sigmoid is 0, or 1, as rounded
/// sigmoid's numerator and denominator are both multiplied by 2^kLittle, so that they are normal numbers for x from
/// kSigmoidLow to kSigmoidHigh.
constexpr int kLittle = -32;
constexpr double kLittlePower = 0x1p-32;

/// r + r^2 P(r) for a P of degree 4. The longest chain of dependent operations is four, by Estrin's scheme five; there
/// is one operation more in all.
Value* expm1_soon(IRBuilder<>& b, Value* r, std::span<const double, 5> p) {
  Value* square = b.CreateFMul(r, r);
  Value* low = fma(b, fma(b, number(r, p[3]), r, number(r, p[4])), square, r);
  Value* high = fma(b, number(r, p[0]), square, fma(b, number(r, p[1]), r, number(r, p[2])));
  return fma(b, high, b.CreateFMul(square, square), low);
}

Value* sigmoid_by_quotient(IRBuilder<>& b, Value* x) {
  const auto [top, bottom] = sigmoid_as_quotient(b, x, false);
  return b.CreateFDiv(top, bottom);
}

Value* tanh_by_quotient(IRBuilder<>& b, Value* x) {
  const auto [top, bottom] = tanh_as_quotient(b, x);
  return b.CreateFDiv(top, bottom);
}

// For results that are rounded to bf16, whose last place is 2^-8: polynomials within 2^-13, and the reciprocal's
// estimate uncorrected. Both are minimax polynomials on [-1/2, 1/2], relative to the function.
constexpr double kExp2Coarse[] = {0.055171669541418, 0.242611125437677, 0.693260985652830, 0.999928073346333};
constexpr double kExp2m1Coarse[] = {0.009618110829156, 0.055837288708787, 0.240232521629522,
                                    0.693136857752064};  // (2^f - 1) / f

/// 1 / (1 + 2^t) with t = -x / ln 2 = n + f.
Value* coarse_sigmoid_by_estimate(IRBuilder<>& b, Value* x) {
  constexpr double kFar = 100;  // beyond it the result is 1, or less than the smallest normal number
  x = at_least(b, at_most(b, x, kFar), -kFar);
  Value* magic = number(x, kFormat32.magic);
  Value* n = b.CreateFSub(fma(b, x, number(x, -kLog2e), magic), magic);
  Value* f = fma(b, x, number(x, -kLog2e), b.CreateFNeg(n));
  Value* power = scale(b, polynomial(b, f, kExp2Coarse), n);
  return reciprocal(b, b.CreateFAdd(power, number(x, 1.0)));
}

/// e / (e + 2) with e = 2^t - 1 = 2^n (2^f - 1) + (2^n - 1) and t = 2|x| / ln 2 = n + f: right for a small x too.
Value* coarse_tanh_by_estimate(IRBuilder<>& b, Value* x) {
  constexpr double kAlmostOne = 10;
  Value* size = at_most(b, absolute(b, x), kAlmostOne);
  Value* magic = number(x, kFormat32.magic);
  Value* n = b.CreateFSub(fma(b, size, number(x, 2 * kLog2e), magic), magic);
  Value* f = fma(b, size, number(x, 2 * kLog2e), b.CreateFNeg(n));
  Value* power = scale(b, number(x, 1.0), n);
  Value* p = b.CreateFMul(polynomial(b, f, kExp2m1Coarse), f);
  Value* e = fma(b, power, p, b.CreateFSub(power, number(x, 1.0)));
  Value* q = b.CreateFMul(e, reciprocal(b, b.CreateFAdd(e, number(x, 2.0))));
  return b.CreateCopySign(q, x);
}

/// 2^-32 / (2^-32 + 2^(n - 32) 2^f) with -x / ln 2 = n + f.
Value* coarse_sigmoid_by_quotient(IRBuilder<>& b, Value* x) {
  x = at_least(b, at_most(b, x, kSigmoidHigh), kSigmoidLow);
  const auto [shifted, n] = nearest_power(b, x, kFormat32, kFormat32.bias + kLittle, -kLog2e);
  Value* f = fma(b, x, number(x, -kLog2e), b.CreateFNeg(n));
  Value* little = number(x, kLittlePower);
  return b.CreateFDiv(little, fma(b, power_of_f32(b, shifted), polynomial(b, f, kExp2Coarse), little));
}

// tanh(x) = x P(x^2) / Q(x^2) for |x| <= 5, fitted by Lawson's algorithm too: relative to tanh within 2^-14, and
// tanh(5) is within 2^-13 of 1.
constexpr double kTanhCoarse = 5;
constexpr double kTanhTopCoarse[] = {6.705682023021974e-4, 0.10241781640543952, 0.9999480734626991};
constexpr double kTanhBottomCoarse[] = {1.281991956413997e-2, 0.43543265639407686, 1.0};

Value* coarse_tanh_by_quotient(IRBuilder<>& b, Value* x) {
  x = at_least(b, at_most(b, x, kTanhCoarse), -kTanhCoarse);
  Value* square = b.CreateFMul(x, x);
  Value* top = b.CreateFMul(polynomial(b, square, kTanhTopCoarse), x);
  return b.CreateFDiv(top, polynomial(b, square, kTanhBottomCoarse));
}

Value* tanh_f32(IRBuilder<>& b, Value* x, bool coarse) {
  if (is_zmm(b, x)) return coarse ? coarse_tanh_by_estimate(b, x) : tanh_by_estimate(b, x);
  return coarse ? coarse_tanh_by_quotient(b, x) : tanh_by_quotient(b, x);
}

Value* sigmoid_f32(IRBuilder<>& b, Value* x, bool coarse) {
  if (is_zmm(b, x)) return coarse ? coarse_sigmoid_by_estimate(b, x) : sigmoid_by_estimate(b, x);
  return coarse ? coarse_sigmoid_by_quotient(b, x) : sigmoid_by_quotient(b, x);
}

}  // namespace

Value* emit_log(IRBuilder<>& b, Value* x) {
  const LogFormat& format = is_double(x) ? kLog64 : kLog32;
  Value* subnormal = b.CreateFCmpOLT(x, number(x, format.smallest_normal));
  Value* normal = b.CreateSelect(subnormal, b.CreateFMul(x, number(x, format.raise)), x);
  Value* fewer = b.CreateSelect(subnormal, number(x, static_cast<double>(format.mantissa)), number(x, 0.0));
  Value* result = log_of_normal(b, normal, fewer);
  llvm::Constant* infinity = llvm::ConstantFP::getInfinity(x->getType());
  Value* not_positive =
      b.CreateSelect(b.CreateFCmpOEQ(x, number(x, 0.0)), llvm::ConstantFP::getInfinity(x->getType(), true),
                     llvm::ConstantFP::getNaN(x->getType()));
  result = b.CreateSelect(b.CreateFCmpOLE(x, number(x, 0.0)), not_positive, result);
  return b.CreateSelect(b.CreateFCmpOLT(x, infinity), result, x);  // inf and NaN stay so
}

Value* emit_exp(IRBuilder<>& b, Value* x) {
  const ExpFormat& format = is_double(x) ? kFormat64 : kFormat32;
  return exp_within(b, at_most(b, at_least(b, x, format.low), format.high));
}

Value* emit_exp_of_sum(IRBuilder<>& b, Value* x, Value* rest) {
  const ExpFormat& format = is_double(x) ? kFormat64 : kFormat32;
  return exp_within(b, at_most(b, at_least(b, x, format.low), format.high), false, rest);
}

Value* emit_sigmoid(IRBuilder<>& b, Value* x, bool coarse) {
  if (!is_double(x)) return sigmoid_f32(b, x, coarse);
  Value* e = exp_within(b, at_least(b, b.CreateFNeg(absolute(b, x)), kFormat64.low));
  Value* one = number(x, 1.0);
  Value* negative = b.CreateFCmpOLT(x, number(x, 0.0));
  Value* top = b.CreateSelect(negative, e, one);
  Value* q = b.CreateFDiv(top, b.CreateFAdd(e, one));
  // 1 + e was rounded, so q is corrected once, by the residual top - q (1 + e) over 1 + e. In the residual top - q is
  // exact; 1 / (1 + e) is q or 1 - q.
  Value* residual = fma(b, b.CreateFNeg(q), e, b.CreateFSub(top, q));
  return fma(b, residual, b.CreateSelect(negative, b.CreateFSub(one, q), q), q);
}

Value* emit_tanh(IRBuilder<>& b, Value* x, bool coarse) {
  if (!is_double(x)) return tanh_f32(b, x, coarse);
  Value* size = absolute(b, x);
  Value* doubled = at_most(b, b.CreateFAdd(size, size), 44.0);
  Value* one = number(x, 1.0);
  Value* divisor = b.CreateFAdd(exp_within(b, doubled, true), one);
  Value* far = b.CreateCopySign(b.CreateFSub(one, b.CreateFDiv(number(x, 2.0), divisor)), x);
  Value* square = b.CreateFMul(x, x);
  Value* p = b.CreateFDiv(polynomial(b, square, kTanhP64), polynomial(b, square, kTanhQ64));
  Value* near = fma(b, b.CreateFMul(p, square), x, x);
  // NaN takes `near`: added to an exponent it could become a number.
  return b.CreateSelect(b.CreateFCmpOGE(size, number(x, 0.625)), far, near);
}

/// 2^-32 / (2^-32 + 2^(n - 32) exp(r)) with -x = n ln 2 + r: a subnormal result is rounded once, by the division.
/// `soon`: takes more operations, of which fewer wait for each other.
Quotient sigmoid_as_quotient(IRBuilder<>& b, Value* x, bool soon) {
  x = at_least(b, at_most(b, x, kSigmoidHigh), kSigmoidLow);
  const auto [shifted, n] = nearest_power(b, x, kFormat32, kFormat32.bias + kLittle, -kLog2e);
  Value* power = power_of_f32(b, shifted);
  Value* r = remainder(b, b.CreateFNeg(x), n, kFormat32);
  Value* p = soon ? expm1_soon(b, r, kExpOfRest) : fma(b, estrin(b, r, kExpOfRest), b.CreateFMul(r, r), r);
  Value* little = number(x, kLittlePower);
  return {little, fma(b, power, p, b.CreateFAdd(power, little))};
}

/// e / (e + 1) with e = (exp(2|x|) - 1) / 2 = 2^n (exp(2r) - 1) / 2 + (2^n - 1) / 2, |x| = n ln(2)/2 + r. The larger n
/// is, the less an error of the exponent matters, so that one f32 is enough for ln(2)/2.
Quotient tanh_as_quotient(IRBuilder<>& b, Value* x) {
  constexpr double kAlmostOne = 10, kHalfLn2 = 0.34657359027997264;
  Value* size = at_most(b, absolute(b, x), kAlmostOne);
  const auto [shifted, n] = nearest_power(b, size, kFormat32, kFormat32.bias, 2 * kLog2e);
  Value* power = power_of_f32(b, shifted);
  Value* r = fma(b, n, number(x, -kHalfLn2), size);
  Value* p = fma(b, estrin(b, r, kTanhOfRest), b.CreateFMul(r, r), r);
  Value* e = fma(b, power, p, fma(b, power, number(x, 0.5), number(x, -0.5)));
  return {b.CreateCopySign(e, x), b.CreateFAdd(e, number(x, 1.0))};
}

Value* emit_expm1(IRBuilder<>& b, Value* x) {
  return b.CreateFMul(emit_tanh(b, b.CreateFMul(x, number(x, 0.5))), b.CreateFAdd(emit_exp(b, x), number(x, 1.0)));
}

}  // namespace weft::codegen
