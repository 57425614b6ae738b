#include "codegen/few_vectors.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "codegen/float_ops.h"
#include "codegen/isa.h"
#include "codegen/vector_math.h"

namespace weft::codegen {
namespace {

using llvm::IRBuilder;
using llvm::Value;

constexpr double kMagic = 12582912.0;  // adding it rounds to an integer, which then stands in the low mantissa bits
constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;

constexpr int kLanes = 16;  // of a register with 512 bits

unsigned lanes_of(Value* x) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  return type != nullptr ? type->getNumElements() : 0;
}

/// Whether there are shuffles that read a table for each lane.
bool has_table(const IRBuilder<>& b, Value* x) {
  return vector_isa(b).avx512 && lanes_of(x) > 1 && lanes_of(x) <= kLanes;
}

constexpr int kParts = kLanes;
constexpr int kIndexBits = 4;

/// A number for each j from 0 to 15.
using Table = float (*)(int j);

// exp(y) = 2^(m/16) exp(r), m = the integer nearest to 16 y / ln 2. A table has the powers 2^(j/16) times a factor, in
// 21 bits, so that adding a number of about their size is exact. A second table has what each number t of the first one
// lacks: factor 2^(j/16) = t exp(lack).
//
// Both numbers of a quotient are multiplied by the factor, for results just below a power of two. There a unit in the
// last place is the smallest part of the result, and a divisor just above one, where rounding changes most, would cost
// two units.
constexpr double kSigmoidFactor = 1.5;
double tanh_factor(int j) {
  return j < 7 ? 1.5 : 1.0;
}  // tanh is within 2.3 units so; with one factor for all, 2.7 or more

double rounded(double power) { return std::round(power * 0x1p20) * 0x1p-20; }
float lack(double power) { return static_cast<float>(std::log(power / rounded(power))); }

/// The number t without what j, shifted to the end of an exponent, has in the bits of the mantissa.
float entry(double power, int j) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(rounded(power)));
  return std::bit_cast<float>(bits - (static_cast<uint32_t>(j) << (23 - kIndexBits)));
}

double sigmoid_power(int j) { return kSigmoidFactor * std::exp2(static_cast<double>(j) / kParts); }
double tanh_power(int j) { return tanh_factor(j) * std::exp2(static_cast<double>(j) / kParts); }

/// In each lane the number of the table at `index` modulo 16. The shuffle is of 512 bits, whatever the number of lanes
/// is.
Value* look_up(IRBuilder<>& b, Table table, Value* index) {
  float numbers[kParts];
  for (int j = 0; j < kParts; ++j) numbers[j] = table(j);
  llvm::Constant* all = llvm::ConstantDataVector::get(b.getContext(), llvm::ArrayRef(numbers));
  const auto lanes = static_cast<int>(lanes_of(index));
  std::vector<int> widening(kLanes, -1), narrowing(static_cast<size_t>(lanes));
  std::iota(widening.begin(), widening.begin() + lanes, 0);
  std::iota(narrowing.begin(), narrowing.end(), 0);
  Value* wide = lanes == kLanes ? index : b.CreateShuffleVector(index, widening);
  Value* found = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {all, wide});
  return lanes == kLanes ? found : b.CreateShuffleVector(found, narrowing);
}

/// The m nearest to x * factor * 16 / ln 2, m in the low bits of an integer, and t 2^exponent for it.
struct Power {
  Value *m, *index, *t;
};

Power nearest_power(IRBuilder<>& b, Value* x, double factor, Table entries, int exponent) {
  Value* magic = number(x, kMagic + kParts * exponent);
  Value* shifted = fma(b, x, number(x, kParts * kLog2e * factor), magic);
  llvm::Type* integers = x->getType()->getWithNewType(b.getInt32Ty());
  Value* index = b.CreateBitCast(shifted, integers);
  // The low bits of m go into the mantissa, where the table's entry is less by them, and the others into the exponent.
  Value* bits = b.CreateAdd(b.CreateBitCast(look_up(b, entries, index), integers), b.CreateShl(index, 23 - kIndexBits));
  return {b.CreateFSub(shifted, magic), index, b.CreateBitCast(bits, x->getType())};
}

// By Lawson's algorithm: (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/32, so that exp(r) is within 2^-29, and
// (tanh(r) - r) / r^3 for |r| <= ln(2)/64, so that tanh(r) is within 2^-31 of itself.
constexpr double kExpOfRest[] = {0.166670334, 0.500016257};
constexpr double kTanhOfRest = -0.3333203258;

/// s / (s + s exp(-x)) with s = 2^-32, as in emit_sigmoid.
Quotient sigmoid_by_table(IRBuilder<>& b, Value* x) {
  constexpr double kLow = -105, kHigh = 20;  // here sigmoid is 0, or 1, as rounded
  constexpr int kLittle = -32;
  x = at_least(b, at_most(b, x, kHigh), kLow);
  const auto [m, index, t] = nearest_power(b, x, -1, [](int j) { return entry(sigmoid_power(j), j); }, kLittle);
  const double step = kLn2 / kParts, rounded_step = static_cast<float>(step);
  Value* lacks = look_up(b, [](int j) { return lack(sigmoid_power(j)); }, index);
  Value* r = fma(b, m, number(x, -rounded_step), b.CreateFNeg(x));
  Value* linear = b.CreateFAdd(r, fma(b, m, number(x, rounded_step - step), lacks));
  Value* p = fma(b, b.CreateFMul(r, r), polynomial(b, r, kExpOfRest), linear);
  Value* little = number(x, std::ldexp(kSigmoidFactor, kLittle));
  return {little, fma(b, t, p, b.CreateFAdd(t, little))};
}

/// With |x| = m ln(2)/32 + r: (p - 1 + (p + 1) tanh(r)) / (p + 1 + (p - 1) tanh(r)), p = 2^(m/16).
Quotient tanh_by_table(IRBuilder<>& b, Value* x) {
  constexpr double kAlmostOne = 10;
  Value* size = at_most(b, absolute(b, x), kAlmostOne);
  const auto [m, index, t] = nearest_power(b, size, 2, [](int j) { return entry(tanh_power(j), j); }, 0);
  Value* r = fma(b, m, number(x, -kLn2 / kParts / 2), size);
  Value* lacks = look_up(b, [](int j) { return lack(tanh_power(j)) / 2; }, index);
  Value* cubed = b.CreateFMul(r, number(x, kTanhOfRest));
  Value* h = fma(b, b.CreateFMul(r, r), cubed, b.CreateFAdd(r, lacks));
  Value* one = look_up(b, [](int j) { return static_cast<float>(tanh_factor(j)); }, index);
  Value* less = b.CreateFSub(t, one);
  Value* more = b.CreateFAdd(less, b.CreateFAdd(one, one));  // what rounding takes from a large t is the same in both
  return {b.CreateCopySign(fma(b, more, h, less), x), fma(b, less, h, more)};
}

}  // namespace

Quotient emit_sigmoid_quotient(IRBuilder<>& b, Value* x) {
  return has_table(b, x) ? sigmoid_by_table(b, x) : sigmoid_as_quotient(b, x, true);
}

Quotient emit_tanh_quotient(IRBuilder<>& b, Value* x) {
  return has_table(b, x) ? tanh_by_table(b, x) : tanh_as_quotient(b, x);
}

Value* emit_sigmoid_alone(IRBuilder<>& b, Value* x) {
  const auto [top, bottom] = emit_sigmoid_quotient(b, x);
  return b.CreateFDiv(top, bottom);
}

Value* emit_tanh_alone(IRBuilder<>& b, Value* x) {
  const auto [top, bottom] = emit_tanh_quotient(b, x);
  return b.CreateFDiv(top, bottom);
}

}  // namespace weft::codegen
