#include "importer/aten_elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "importer/aten_derivative.h"
#include "torch_release.h"

namespace weft::importer {

using ir::Builder;
using ir::OpCode;
using ir::ValueId;

namespace {

using MaybeDType = std::optional<DType>;

DType promote(DType a, DType b) {
  if (a == b || b == DType::kBool) return a;
  if (a == DType::kBool) return b;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_floating(a) && size_of(a) == size_of(b)) return DType::kF32;  // f16 and bf16
  if (size_of(a) == size_of(b)) return DType::kI16;                    // i8 and u8
  return size_of(a) > size_of(b) ? a : b;
}

/// Type promotion as in at::native::combine_categories. Tensors with dims take precedence over tensors without dims,
/// and tensors over numbers. But an argument of lower precedence decides if its dtype is of a higher kind (floating
/// over integer over bool).
MaybeDType combine(MaybeDType higher, MaybeDType lower) {
  if (!higher || !lower) return higher ? higher : lower;
  if (is_floating(*higher)) return higher;
  if (*higher == DType::kBool || is_floating(*lower)) return promote(*higher, *lower);
  return higher;
}

DType number_dtype(const Argument& argument) {
  if (std::holds_alternative<bool>(argument)) return DType::kBool;
  const bool is_integer = std::holds_alternative<int64_t>(argument) || std::holds_alternative<ir::Dim>(argument) ||
                          std::holds_alternative<Negative>(argument);
  return is_integer ? DType::kI64 : DType::kF32;
}

}  // namespace

DType promoted_dtype(const AtenCall& call) {
  MaybeDType with_dims, without_dims, number;
  for (size_t i = 0; i < 2; ++i) {
    if (!call.is_tensor(i)) {
      if (!call.is_size(i)) call.number(i);  // must be one
      number = number ? promote(*number, number_dtype(call.arguments[i])) : number_dtype(call.arguments[i]);
      continue;
    }
    const ir::Type& type = call.type(call.tensor(i));
    MaybeDType& dtype = type.rank() > 0 ? with_dims : without_dims;
    dtype = dtype ? promote(*dtype, type.dtype) : type.dtype;
  }
  return combine(with_dims, combine(without_dims, number)).value();
}

ValueId square(const AtenCall& call) {
  ValueId x = call.operand(0);
  return call.builder.mul(x, x);
}

namespace {

/// x^n, n >= 1, by squares.
ValueId integer_power(const AtenCall& call, ValueId x, int64_t n) {
  ValueId result = ir::kNoValue;
  for (ValueId factor = x;; factor = call.builder.mul(factor, factor)) {
    if (n % 2 == 1) result = result == ir::kNoValue ? factor : call.builder.mul(result, factor);
    n /= 2;
    if (n == 0) return result;
  }
}

}  // namespace

ValueId power(const AtenCall& call) {
  ValueId x = call.operand(0);
  if (call.is_size(1) && is_floating(call.result.dtype)) return call.binary(OpCode::kPow, x, call.operand(1));
  double exponent = call.number(1);
  if (exponent == 0.0) return call.constant(1.0);
  if (exponent == 1.0) return x;
  if (exponent == 2.0 || exponent == 3.0) return integer_power(call, x, static_cast<int64_t>(exponent));
  if (!is_floating(call.result.dtype)) {
    check(exponent > 0 && exponent < 64 && exponent == std::floor(exponent), "{}: {} as an exponent of integers",
          call.op, exponent);
    return integer_power(call, x, static_cast<int64_t>(exponent));
  }
  if (exponent == 0.5) return call.unary(OpCode::kSqrt, x);
  if (exponent == -0.5) return call.unary(OpCode::kRsqrt, x);
  if (exponent == -1.0) return call.builder.div(call.constant(1.0), x);
  if (exponent == -2.0) return call.builder.div(call.constant(1.0), call.builder.mul(x, x));
  return call.binary(OpCode::kPow, x, call.constant(exponent));
}

ValueId power_of_tensors(const AtenCall& call) { return call.binary(OpCode::kPow, call.operand(0), call.operand(1)); }

ValueId exp2(const AtenCall& call) { return call.binary(OpCode::kPow, call.constant(2.0), call.operand(0)); }

namespace {

/// x clamped at one side: the bound where x is beyond it or the bound is NaN, else x.
ValueId bounded(const AtenCall& call, ValueId x, size_t bound, OpCode beyond) {
  if (bound >= call.arguments.size() || call.is_none(bound)) return x;
  ValueId limit = call.operand(bound);
  ValueId is_beyond = call.binary(beyond, x, limit);
  if (call.is_tensor(bound) && is_floating(call.result.dtype))
    is_beyond = call.binary(OpCode::kOr, is_beyond, call.binary(OpCode::kNe, limit, limit));
  return call.builder.select(is_beyond, limit, x);
}

/// The operands of clamp, whose bounds may be missing.
struct Clamped {
  ValueId x;
  std::optional<ValueId> low, high;
};

/// The masks and the cotangent that the cotangents of clamp are made of.
struct ClampMasks {
  Builder& b;
  const Clamped& given;
  ValueId cotangent, zero = like(b, 0, given.x);

  ValueId is(OpCode code, ValueId a, ValueId c) const { return b.binary(code, a, c); }
  ValueId both(ValueId a, ValueId c) const { return b.binary(OpCode::kAnd, a, c); }
  ValueId either(ValueId a, ValueId c) const { return b.binary(OpCode::kOr, a, c); }
  ValueId no(ValueId a) const { return b.unary(OpCode::kNot, a); }
  ValueId where(ValueId mask) const { return b.select(mask, cotangent, zero); }
  ValueId half_where(ValueId mask, ValueId otherwise) const {
    return b.select(mask, b.mul(cotangent, like(b, 0.5, given.x)), otherwise);
  }
};

/// The cotangents of clamp, as in PyTorch's clamp_backward and clamp_backward_min_max: in 2.13 for all bounds, since
/// 2.14 for bounds that are numbers. x gets the cotangent within the bounds (since 2.14: strictly within), and a bound
/// gets it where x is beyond the bound. A comparison with NaN is false. A lower bound that isn't below the upper bound
/// gets no cotangent.
std::vector<ValueId> clamp_cotangents(const ClampMasks& m) {
  const auto& [x, low, high] = m.given;
  const auto joined = [&](std::optional<ValueId> a, ValueId c) { return a ? m.both(*a, c) : c; };
  std::optional<ValueId> inside, below, above;
  if (low) {
    inside = m.is(kSharesDerivativesOfEqual ? OpCode::kGt : OpCode::kGe, x, *low);
    if (high) below = m.is(OpCode::kLt, *low, *high);
    below = joined(below, m.is(OpCode::kLt, x, *low));
  }
  if (high) {
    inside = joined(inside, m.is(kSharesDerivativesOfEqual ? OpCode::kLt : OpCode::kLe, x, *high));
    above = m.is(OpCode::kGt, x, *high);
    if (low) above = m.either(m.is(OpCode::kLt, *high, *low), *above);
  }
  std::vector<ValueId> cotangents{m.where(*inside)};
  if (below) cotangents.push_back(m.where(*below));
  if (above) cotangents.push_back(m.where(*above));
  return cotangents;
}

/// The cotangents of clamp.Tensor since 2.14. x and a bound that is equal to it get half each, unless the two bounds
/// are equal. With one bound these are the cotangents of maximum or minimum. Where x or a bound is NaN, x gets all of
/// the cotangent, and a single bound gets all of it too.
std::vector<ValueId> shared_clamp_cotangents(const ClampMasks& m) {
  const auto& [x, low, high] = m.given;
  if (!low || !high) {
    const ValueId bound = low ? *low : *high, is_tie = m.is(OpCode::kEq, x, bound);
    const OpCode beyond = low ? OpCode::kLt : OpCode::kGt, within = low ? OpCode::kGt : OpCode::kLt;
    return {m.half_where(is_tie, m.where(m.no(m.is(beyond, x, bound)))),
            m.half_where(is_tie, m.where(m.no(m.is(within, x, bound))))};
  }
  const ValueId are_apart = m.is(OpCode::kLt, *low, *high), are_in_order = m.is(OpCode::kLe, *low, *high);
  const ValueId is_below = m.is(OpCode::kLt, x, *low), is_above = m.is(OpCode::kGt, x, *high);
  const ValueId is_low = m.both(m.is(OpCode::kEq, x, *low), are_apart);
  const ValueId is_high = m.both(m.is(OpCode::kEq, x, *high), are_apart);
  const ValueId above = m.either(m.both(is_above, are_in_order), m.is(OpCode::kGt, *low, *high));
  return {m.half_where(m.either(is_low, is_high), m.where(m.no(m.either(is_below, is_above)))),
          m.half_where(is_low, m.where(m.both(is_below, are_in_order))), m.half_where(is_high, m.where(above))};
}

/// A clamped value with PyTorch's derivative. `low` and `high` are the bounds' arguments.
ValueId with_clamp_derivative(const AtenCall& call, ValueId value, std::optional<size_t> low,
                              std::optional<size_t> high) {
  if (!is_floating(call.result.dtype)) return value;
  const auto is_given = [&](std::optional<size_t> i) { return i && *i < call.arguments.size() && !call.is_none(*i); };
  std::vector<ValueId> inputs{call.operand(0)};
  bool by_tensors = false;
  for (const auto& bound : {low, high}) {
    if (!is_given(bound)) continue;
    inputs.push_back(call.operand(*bound));
    by_tensors |= call.is_tensor(*bound);
  }
  if (inputs.size() == 1) return value;
  return with_derivative(call, inputs, value, [&](Builder& b, std::span<const ValueId> given, ValueId cotangent) {
    Clamped clamped{given[0], {}, {}};
    if (is_given(low)) clamped.low = given[1];
    if (is_given(high)) clamped.high = given.back();
    const ClampMasks masks{b, clamped, cotangent};
    return kSharesDerivativesOfEqual && by_tensors ? shared_clamp_cotangents(masks) : clamp_cotangents(masks);
  });
}

/// The larger (`beyond`: kLt) or smaller (kGt) argument, or the one that isn't NaN. If both are equal, x gets the whole
/// cotangent in PyTorch 2.13, and each argument gets half of it since 2.14. If one is NaN, each argument gets the whole
/// cotangent in 2.14.
ValueId extreme(const AtenCall& call, OpCode beyond) {
  const ValueId x = call.operand(0), y = call.operand(1);
  const auto is_first = [&](Builder& b, ValueId x, ValueId y) {
    const OpCode within = beyond == OpCode::kLt ? OpCode::kGe : OpCode::kLe;
    return b.binary(OpCode::kOr, b.binary(within, x, y), b.binary(OpCode::kNe, y, y));
  };
  const ValueId value = call.builder.select(is_first(call.builder, x, y), x, y);
  if (!is_floating(call.result.dtype)) return value;
  return with_derivative(call, {x, y}, value, [&](Builder& b, std::span<const ValueId> given, ValueId cotangent) {
    Clamped clamped{given[0], {}, {}};
    (beyond == OpCode::kLt ? clamped.low : clamped.high) = given[1];
    const ClampMasks masks{b, clamped, cotangent};
    if (kSharesDerivativesOfNan) return shared_clamp_cotangents(masks);
    const ValueId first = is_first(b, given[0], given[1]);
    std::vector<ValueId> cotangents{masks.where(first), masks.where(masks.no(first))};
    if (!kSharesDerivativesOfEqual) return cotangents;
    const ValueId is_tie = masks.is(OpCode::kEq, given[0], given[1]);
    return std::vector<ValueId>{masks.half_where(is_tie, cotangents[0]), masks.half_where(is_tie, cotangents[1])};
  });
}

}  // namespace

ValueId clamp(const AtenCall& call) {
  ValueId value = bounded(call, bounded(call, call.operand(0), 1, OpCode::kLt), 2, OpCode::kGt);
  return with_clamp_derivative(call, value, 1, 2);
}
ValueId clamp_min(const AtenCall& call) {
  return with_clamp_derivative(call, bounded(call, call.operand(0), 1, OpCode::kLt), 1, {});
}
ValueId clamp_max(const AtenCall& call) {
  return with_clamp_derivative(call, bounded(call, call.operand(0), 1, OpCode::kGt), {}, 1);
}
ValueId fmax(const AtenCall& call) { return extreme(call, OpCode::kLt); }
ValueId fmin(const AtenCall& call) { return extreme(call, OpCode::kGt); }

/// For integers a xor b is (a | b) - (a & b).
ValueId exclusive_or(const AtenCall& call) {
  ValueId a = call.operand(0);
  ValueId b = call.operand(1);
  if (call.result.dtype == DType::kBool) return call.binary(OpCode::kNe, a, b);
  return call.builder.sub(call.binary(OpCode::kOr, a, b), call.binary(OpCode::kAnd, a, b));
}

ValueId is_nan(const AtenCall& call) {
  ValueId x = call.tensor(0);
  return call.binary(OpCode::kNe, x, x);
}

ValueId is_inf(const AtenCall& call) {
  ValueId x = call.tensor(0);
  if (!is_floating(call.type(x).dtype)) return call.constant(0);
  return call.binary(OpCode::kEq, call.unary(OpCode::kAbs, x),
                     call.constant(std::numeric_limits<double>::infinity(), x));
}

namespace {

/// True where floor and trunc of the quotient differ: the remainder is not 0 and has another sign than the divisor.
ValueId differ(const AtenCall& call, ValueId rest, ValueId divisor) {
  ValueId zero = call.constant(0.0, rest);
  ValueId signs =
      call.binary(OpCode::kNe, call.binary(OpCode::kLt, divisor, zero), call.binary(OpCode::kLt, rest, zero));
  return call.binary(OpCode::kAnd, call.binary(OpCode::kNe, rest, zero), signs);
}

/// Floor division as in c10::div_floor_floating. It is computed from the remainder, since floor of the rounded quotient
/// may be wrong.
ValueId floor_quotient(const AtenCall& call, ValueId a, ValueId b) {
  ValueId one = call.constant(1.0);
  ValueId rest = call.binary(OpCode::kRem, a, b);
  ValueId quotient =
      is_floating(call.result.dtype) ? call.builder.div(call.builder.sub(a, rest), b) : call.builder.div(a, b);
  quotient = call.builder.select(differ(call, rest, b), call.builder.sub(quotient, one), quotient);
  if (!is_floating(call.result.dtype)) return quotient;
  ValueId low = call.unary(OpCode::kFloor, quotient);
  ValueId above = call.binary(OpCode::kGt, call.builder.sub(quotient, low), call.constant(0.5));
  ValueId exact = call.builder.select(above, call.unary(OpCode::kFloor, call.builder.add(low, one)), low);
  ValueId by_zero = call.binary(OpCode::kEq, b, call.constant(0.0));
  return call.builder.select(by_zero, call.unary(OpCode::kFloor, call.builder.div(a, b)), exact);
}

}  // namespace

ValueId remainder(const AtenCall& call) {
  ValueId b = call.operand(1);
  ValueId rest = call.binary(OpCode::kRem, call.operand(0), b);
  return call.builder.select(differ(call, rest, b), call.builder.add(rest, b), rest);
}

ValueId floor_divide(const AtenCall& call) { return floor_quotient(call, call.operand(0), call.operand(1)); }

ValueId divide_rounded(const AtenCall& call) {
  ValueId a = call.operand(0);
  ValueId b = call.operand(1);
  if (call.is_none(2)) return call.builder.div(a, b);
  if (call.word(2) == "floor") return floor_quotient(call, a, b);
  ValueId quotient = call.builder.div(a, b);
  return is_floating(call.result.dtype) ? call.unary(OpCode::kTrunc, quotient) : quotient;
}

ValueId tan(const AtenCall& call) {
  ValueId x = call.operand(0);
  return call.builder.div(call.unary(OpCode::kSin, x), call.unary(OpCode::kCos, x));
}

namespace {

/// sqrt(1 - x^2)
ValueId other_leg(const AtenCall& call, ValueId x) {
  ValueId one = call.constant(1.0);
  return call.unary(OpCode::kSqrt, call.builder.mul(call.builder.sub(one, x), call.builder.add(one, x)));
}

ValueId half(const AtenCall& call, ValueId x) { return call.builder.mul(x, call.constant(0.5)); }

/// near(x), or log(2 x) for x so large that its square might overflow, where both are the same.
template <typename Near>
ValueId log_of_twice(const AtenCall& call, ValueId x, Near near) {
  ValueId far = call.binary(OpCode::kGt, x, call.constant(call.result.dtype == DType::kF64 ? 1e9 : 1e5));
  // The branch that is not chosen gets 1 in place of x, so that its derivative is finite.
  ValueId large = call.builder.select(far, x, call.constant(1.0));
  ValueId log = call.builder.add(call.unary(OpCode::kLog, large), call.constant(std::numbers::ln2));
  return call.builder.select(far, log, near(call.builder.select(far, call.constant(1.0), x)));
}

}  // namespace

namespace {

/// 1/sqrt(1 - x^2), infinite at 1 and -1.
ValueId slope_of_asin(Builder& b, ValueId x) {
  return b.unary(OpCode::kRsqrt, b.add(b.mul(b.neg(x), x), like(b, 1, x)));
}

}  // namespace

ValueId asin(const AtenCall& call) {
  ValueId x = call.operand(0);
  return with_slope(call, x, call.binary(OpCode::kAtan2, x, other_leg(call, x)), slope_of_asin);
}

ValueId acos(const AtenCall& call) {
  ValueId x = call.operand(0);
  return with_slope(call, x, call.binary(OpCode::kAtan2, other_leg(call, x), x),
                    [](Builder& b, ValueId at) { return b.neg(slope_of_asin(b, at)); });
}

ValueId atan(const AtenCall& call) { return call.binary(OpCode::kAtan2, call.operand(0), call.constant(1.0)); }

ValueId sinh(const AtenCall& call) {
  ValueId x = call.operand(0);
  ValueId down = call.unary(OpCode::kExpm1, call.builder.neg(x));
  return half(call, call.builder.sub(call.unary(OpCode::kExpm1, x), down));
}

ValueId cosh(const AtenCall& call) {
  ValueId x = call.operand(0);
  return half(call, call.builder.add(call.unary(OpCode::kExp, x), call.unary(OpCode::kExp, call.builder.neg(x))));
}

/// log1p(a + a^2 / (1 + sqrt(1 + a^2))) of a = |x|, with the sign of x.
ValueId asinh(const AtenCall& call) {
  ValueId x = call.operand(0);
  ValueId negative = call.binary(OpCode::kLt, x, call.constant(0.0));
  ValueId size = call.builder.select(negative, call.builder.neg(x), x);
  ValueId result = log_of_twice(call, size, [&](ValueId a) {
    ValueId one = call.constant(1.0);
    ValueId square = call.builder.mul(a, a);
    ValueId root = call.unary(OpCode::kSqrt, call.builder.add(one, square));
    ValueId rest = call.builder.div(square, call.builder.add(one, root));
    return call.unary(OpCode::kLog1p, call.builder.add(a, rest));
  });
  return call.builder.select(negative, call.builder.neg(result), result);
}

/// log1p(t + sqrt(t (t + 2))) of t = x - 1.
ValueId acosh(const AtenCall& call) {
  ValueId given = call.operand(0);
  ValueId value = log_of_twice(call, given, [&](ValueId x) {
    ValueId t = call.builder.sub(x, call.constant(1.0));
    ValueId square = call.builder.mul(t, call.builder.add(t, call.constant(2.0)));
    return call.unary(OpCode::kLog1p, call.builder.add(t, call.unary(OpCode::kSqrt, square)));
  });
  return with_slope(call, given, value,
                    [](Builder& b, ValueId x) { return b.unary(OpCode::kRsqrt, b.sub(b.mul(x, x), like(b, 1, x))); });
}

ValueId atanh(const AtenCall& call) {
  ValueId x = call.operand(0);
  ValueId down = call.unary(OpCode::kLog1p, call.builder.neg(x));
  return half(call, call.builder.sub(call.unary(OpCode::kLog1p, x), down));
}

namespace {

/// start + step * index, of the result's dtype.
ValueId progression(const AtenCall& call, double start, double step) {
  ValueId index = call.iota(call.result.shape, 0, call.result.dtype);
  if (step != 1) index = call.builder.mul(index, call.constant(step));
  return start == 0 ? index : call.builder.add(index, call.constant(start));
}

}  // namespace

ValueId arange(const AtenCall& call) {
  bool has_step = call.op == "aten.arange.start_step";
  return progression(call, call.op == "aten.arange.default" ? 0 : call.number(0), has_step ? call.number(2) : 1);
}

ValueId prims_iota(const AtenCall& call) { return progression(call, call.number(1), call.number(2)); }

ValueId eye(const AtenCall& call) {
  const ir::Shape& shape = call.result.shape;
  ValueId equal = call.binary(OpCode::kEq, call.iota(shape, 0, DType::kI64), call.iota(shape, 1, DType::kI64));
  return call.cast(equal, call.result.dtype);
}

ValueId triangle(const AtenCall& call, OpCode keeps) {
  size_t rank = call.result.shape.size();
  ValueId row = call.iota(call.result.shape, rank - 2, DType::kI64);
  ValueId column = call.iota(call.result.shape, rank - 1, DType::kI64);
  ValueId limit = call.builder.add(row, call.constant(static_cast<double>(call.integer(1)), row));
  return call.builder.select(call.binary(keeps, column, limit), call.operand(0), call.constant(0.0));
}

}  // namespace weft::importer
