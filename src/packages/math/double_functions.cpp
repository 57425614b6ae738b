#include "packages/math/double_functions.h"

#include <span>

#include "codegen/float_ops.h"
#include "codegen/library_math.h"
#include "codegen/vector_math.h"
#include "packages/math/double_double.h"

namespace weft::packages {
namespace {

using codegen::absolute, codegen::fma, codegen::number, codegen::polynomial;
using llvm::IRBuilder;
using llvm::Value;

/// x = m 2^n for a positive finite x, with m between sqrt(1/2) and sqrt(2).
struct Scaled {
  Value *m, *n;
};

Scaled scaled(IRBuilder<>& b, Value* x) {
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  constexpr double kMagic = 0x1.8p52;
  llvm::Type* integers = x->getType()->getWithNewType(b.getInt64Ty());
  const auto integer = [&](uint64_t value) { return llvm::ConstantInt::get(integers, value); };
  Value* subnormal = b.CreateFCmpOLT(x, number(x, 0x1p-1022));
  x = b.CreateSelect(subnormal, b.CreateFMul(x, number(x, 0x1p54)), x);
  Value* bits = b.CreateAdd(b.CreateBitCast(x, integers), integer(kOne - kRootHalf));
  Value* exponent = b.CreateSub(b.CreateLShr(bits, 52), integer(kOne >> 52));
  // Added to the bits of 1.5 2^52, an integer is a number behind these.
  Value* magic = number(x, kMagic);
  Value* n = b.CreateBitCast(b.CreateAdd(exponent, b.CreateBitCast(magic, integers)), x->getType());
  n = b.CreateFSub(b.CreateFSub(n, magic), b.CreateSelect(subnormal, number(x, 54), number(x, 0)));
  Value* fraction = b.CreateAnd(bits, integer((uint64_t{1} << 52) - 1));
  return {b.CreateBitCast(b.CreateAdd(fraction, integer(kRootHalf)), x->getType()), n};
}

/// log(m) = 2 atanh(s) for s = (m - 1) / (m + 1), by Taylor's series s (2 + 2 s^2 / 3 + ...), within 2^-64 of it.
Two log_near_one(IRBuilder<>& b, Value* m) {
  constexpr double kThird = 1.0 / 3, kThirdRest = 1.850371707708594e-17;
  constexpr double kSeries[] = {1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17,
                                1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5};
  Value* one = number(m, 1);
  Value *above = b.CreateFAdd(m, one), *distance = b.CreateFSub(m, one);
  Value* lost = b.CreateFSub(m, b.CreateFSub(above, one));
  Value* inverse = b.CreateFDiv(one, above);
  Value* s = b.CreateFMul(distance, inverse);
  const Two back = exact_product(b, s, above);
  Value* rest = b.CreateFSub(b.CreateFSub(distance, back.high), fma(b, s, lost, back.low));
  const Two quotient{s, b.CreateFMul(rest, inverse)};
  const Two square = product(b, quotient, quotient);
  Two inner = exact_sum(b, number(m, kThird), b.CreateFMul(square.high, polynomial(b, square.high, kSeries)));
  inner.low = b.CreateFAdd(inner.low, number(m, kThirdRest));
  const Two more = product(b, square, inner);
  const Two one_and_more = exact_sum(b, one, more.high);
  Value* two = number(m, 2);
  return product(b, {b.CreateFMul(quotient.high, two), b.CreateFMul(quotient.low, two)},
                 {one_and_more.high, b.CreateFAdd(one_and_more.low, more.low)});
}

/// log(x) of a positive finite x, within 2^-64 of it.
Two log_of(IRBuilder<>& b, Value* x) {
  // The first part has 41 bits, so that its product by n is exact.
  constexpr double kLn2 = 0.693147180559663, kLn2Rest = 2.8235290563031577e-13;
  const Scaled parts = scaled(b, x);
  const Two near = log_near_one(b, parts.m);
  const Two sum = exact_sum(b, b.CreateFMul(parts.n, number(x, kLn2)), near.high);
  Value* low = b.CreateFAdd(b.CreateFAdd(sum.low, near.low), b.CreateFMul(parts.n, number(x, kLn2Rest)));
  return exact_sum(b, sum.high, low);
}

/// The low part where it counts: beyond it may be NaN.
Value* exp_of(IRBuilder<>& b, const Two& x) {
  Value* counts = b.CreateFCmpOLT(absolute(b, x.high), number(x.high, 1000));
  return codegen::emit_exp_of_sum(b, x.high, b.CreateSelect(counts, x.low, number(x.high, 0)));
}

// erf(x) = x + x P(x^2) / Q(x^2) for |x| < 0.84375 (fdlibm).
constexpr double kNearTop[] = {-2.37630166566501626084e-05, -5.77027029648944159157e-03, -2.84817495755984104766e-02,
                               -3.25042107247001499370e-01, 1.28379167095512558561e-01};
constexpr double kNearBottom[] = {-3.96022827877536812320e-06, 1.32494738004321644526e-04, 5.08130628187576562776e-03,
                                  6.50222499887672944485e-02,  3.97917223959155352819e-01, 1.0};
// (1 + 2 x) exp(x^2) erfc(x) as a polynomial of (x - 4) / (x + 4) for x from 0 to 28 (M. M. Shepherd and J. G.
// Laframboise, "Chebyshev approximation of (1 + 2x)exp(x^2)erfc x in 0 <= x < inf", 1981), fitted by Remez's algorithm,
// within 2^-56 of it.
constexpr double kTail[] = {
    -1.7176144291520074e-09, -1.338624385159308e-08, -7.778913418818814e-09, 1.1456126153288127e-07,
    6.238910570419356e-08,   -8.342403500090517e-07, 3.0195644255420704e-07, 5.7172952119387945e-06,
    -1.1225283101282593e-05, -2.440294149133679e-05, 0.00015062247161018295, -0.00019925556126901444,
    -0.0007577734048744242,  0.005031969763570676,   -0.01619773404842216,   0.03716751556185222,
    -0.06633036581256412,    0.09373283499682386,    -0.10103906603630114,   0.0680970542547366,
    0.015379652102619764,    -0.1396211168405629,    1.2329951186255526};

/// erf(x) for |x| < 0.84375.
Value* erf_near(IRBuilder<>& b, Value* x) {
  Value* square = b.CreateFMul(x, x);
  Value* quotient = b.CreateFDiv(polynomial(b, square, kNearTop), polynomial(b, square, kNearBottom));
  return fma(b, x, quotient, x);
}

/// erfc(x) for x >= 0, and NaN for NaN.
Value* erfc_tail(IRBuilder<>& b, Value* x) {
  constexpr double kMost = 28;  // erfc(28) is 0, as rounded
  Value* one = number(x, 1);
  x = codegen::at_most(b, x, kMost);
  Value* t = b.CreateFDiv(b.CreateFSub(x, number(x, 4)), b.CreateFAdd(x, number(x, 4)));
  const Two square = exact_product(b, x, x);
  Value* scale = exp_of(b, {b.CreateFNeg(square.high), b.CreateFNeg(square.low)});
  return b.CreateFMul(b.CreateFDiv(polynomial(b, t, kTail), fma(b, number(x, 2), x, one)), scale);
}

}  // namespace

Value* emit_double_power(IRBuilder<>& b, Value* x, Value* y) {
  Value *size = absolute(b, x), *zero = number(x, 0);
  llvm::Constant* infinity = llvm::ConstantFP::getInfinity(x->getType());
  const Two logarithm = log_of(b, size);
  // The logarithms of 0, infinity and NaN.
  Value* edge = b.CreateSelect(b.CreateFCmpOEQ(size, zero), llvm::ConstantFP::getInfinity(x->getType(), true), size);
  Value* within = b.CreateAnd(b.CreateFCmpOGT(size, zero), b.CreateFCmpOLT(size, infinity));
  Two exponent = exact_product(b, y, b.CreateSelect(within, logarithm.high, edge));
  exponent.low = b.CreateFAdd(exponent.low, b.CreateFMul(y, logarithm.low));
  return codegen::emit_power_edges(b, x, y, exp_of(b, exponent));
}

Value* emit_double_erf(IRBuilder<>& b, Value* x) {
  Value* size = absolute(b, x);
  Value* far = b.CreateCopySign(b.CreateFSub(number(x, 1), erfc_tail(b, size)), x);
  return b.CreateSelect(b.CreateFCmpOLT(size, number(x, 0.84375)), erf_near(b, x), far);
}

Value* emit_double_erfc(IRBuilder<>& b, Value* x) {
  Value *size = absolute(b, x), *tail = erfc_tail(b, size);
  Value* far = b.CreateSelect(b.CreateFCmpOLT(x, number(x, 0)), b.CreateFSub(number(x, 2), tail), tail);
  Value* near = b.CreateFSub(number(x, 1), erf_near(b, x));
  return b.CreateSelect(b.CreateFCmpOLT(size, number(x, 0.25)), near, far);
}

}  // namespace weft::packages
