#include "importer/aten_special.h"

#include <limits>
#include <numbers>
#include <numeric>

#include "importer/aten_derivative.h"

namespace weft::importer {

using ir::Builder;
using ir::OpCode;
using ir::ValueId;

namespace {

using Inputs = std::span<const ValueId>;

/// The dtype in which PyTorch's kernels compute. With f16 or bf16 tensors they round once.
DType computed_in(DType dtype) { return is_half(dtype) ? DType::kF32 : dtype; }

ValueId wide_operand(const AtenCall& call, size_t i) { return call.operand(i, computed_in(call.result.dtype)); }

ValueId is_both(Builder& b, ValueId a, ValueId c) { return b.binary(OpCode::kAnd, a, c); }

ValueId one_less(Builder& b, ValueId x) { return b.sub(like(b, 1, x), x); }

}  // namespace

/// sin(pi x) / (pi x), 1 at 0.
ValueId sinc(const AtenCall& call) {
  Builder& b = call.builder;
  const ValueId x = wide_operand(call, 0);
  const ValueId angle = b.mul(x, like(b, std::numbers::pi, x));
  const ValueId at_zero = b.binary(OpCode::kEq, x, like(b, 0, x));
  const ValueId value = b.select(at_zero, like(b, 1, x), b.div(b.unary(OpCode::kSin, angle), angle));
  const auto slope = [](Builder& b, ValueId x) {
    const ValueId angle = b.mul(x, like(b, std::numbers::pi, x));
    const ValueId square = b.mul(angle, x);
    const ValueId rise = b.sub(b.mul(angle, b.unary(OpCode::kCos, angle)), b.unary(OpCode::kSin, angle));
    return b.select(b.binary(OpCode::kEq, square, like(b, 0, x)), like(b, 0, x), b.div(rise, square));
  };
  return call.cast(with_slope(call, x, value, slope), call.result.dtype);
}

namespace {

/// x log(y), or x log1p(y). `end`: the y at which the logarithm is infinite, 0 or -1. The result is 0 where x is 0,
/// unless y is NaN. The derivative by x is 0 where x is 0 and y is at most `end`.
ValueId times_log(const AtenCall& call, OpCode log, double end) {
  Builder& b = call.builder;
  const ValueId x = wide_operand(call, 0), y = wide_operand(call, 1), zero = like(b, 0, x);
  const ValueId vanishes = is_both(b, b.binary(OpCode::kEq, x, zero), b.binary(OpCode::kEq, y, y));
  const ValueId value = b.select(vanishes, zero, b.mul(x, b.unary(log, y)));
  const auto derivative = [=](Builder& b, Inputs inputs, ValueId cotangent) {
    const ValueId x = inputs[0], y = inputs[1], zero = like(b, 0, x);
    const ValueId flat = is_both(b, b.binary(OpCode::kEq, x, zero), b.binary(OpCode::kLe, y, like(b, end, y)));
    const ValueId argument = end == 0 ? y : b.sub(y, like(b, end, y));
    return std::vector<ValueId>{b.mul(cotangent, b.select(flat, zero, b.unary(log, y))),
                                b.div(b.mul(cotangent, x), argument)};
  };
  return call.cast(with_derivative(call, {x, y}, value, derivative), call.result.dtype);
}

}  // namespace

ValueId xlogy(const AtenCall& call) { return times_log(call, OpCode::kLog, 0); }
ValueId xlog1py(const AtenCall& call) { return times_log(call, OpCode::kLog1p, -1); }

/// -x log(x), 0 at 0, -inf below.
ValueId entropy(const AtenCall& call) {
  Builder& b = call.builder;
  const ValueId x = wide_operand(call, 0), zero = like(b, 0, x);
  const ValueId product = b.mul(b.neg(x), b.unary(OpCode::kLog, x));
  const ValueId below =
      b.select(b.binary(OpCode::kLt, x, zero), like(b, -std::numeric_limits<double>::infinity(), x), product);
  const ValueId value = b.select(b.binary(OpCode::kEq, x, zero), zero, below);
  const auto slope = [](Builder& b, ValueId x) { return b.neg(b.add(b.unary(OpCode::kLog, x), like(b, 1, x))); };
  return call.cast(with_slope(call, x, value, slope), call.result.dtype);
}

/// log(x / (1 - x)). With eps, x is first clamped to eps..1 - eps, and the derivative is 0 outside of this range.
/// Without eps the derivative is NaN outside of 0..1.
ValueId logit(const AtenCall& call) {
  Builder& b = call.builder;
  const ValueId x = wide_operand(call, 0);
  const bool has_eps = call.arguments.size() > 1 && !call.is_none(1) && call.number(1) >= 0;
  const double eps = has_eps ? call.number(1) : 0;
  ValueId z = x;
  if (has_eps) {
    const ValueId low = like(b, eps, x), high = like(b, 1 - eps, x);
    z = b.select(b.binary(OpCode::kLt, z, low), low, z);
    z = b.select(b.binary(OpCode::kGt, z, high), high, z);
  }
  const ValueId value = b.unary(OpCode::kLog, b.div(z, one_less(b, z)));
  const auto slope = [=](Builder& b, ValueId x) {
    const ValueId outside =
        b.binary(OpCode::kOr, b.binary(OpCode::kLt, x, like(b, eps, x)), b.binary(OpCode::kGt, x, like(b, 1 - eps, x)));
    const ValueId there = like(b, has_eps ? 0 : std::numeric_limits<double>::quiet_NaN(), x);
    return b.select(outside, there, b.div(like(b, 1, x), b.mul(x, one_less(b, x))));
  };
  return call.cast(with_slope(call, x, value, slope), call.result.dtype);
}

namespace {

/// -(target log(x) + (1 - target) log(1 - x)), the logarithms being at least -100.
ValueId cross_entropy(const AtenCall& call, ValueId x, ValueId target) {
  Builder& b = call.builder;
  const auto bounded = [&](ValueId log) { return b.binary(OpCode::kMaximum, log, like(b, -100, log)); };
  const ValueId log = bounded(b.unary(OpCode::kLog, x)), other = bounded(b.unary(OpCode::kLog1p, b.neg(x)));
  const ValueId value = b.sub(b.mul(b.sub(target, like(b, 1, x)), other), b.mul(target, log));
  const auto derivative = [](Builder& b, Inputs inputs, ValueId cotangent) {
    const ValueId x = inputs[0], target = inputs[1];
    const ValueId width = b.mul(one_less(b, x), x);
    const ValueId by_x = b.div(b.sub(x, target), b.binary(OpCode::kMaximum, width, like(b, 1e-12, x)));
    const ValueId by_target = b.sub(b.unary(OpCode::kLog1p, b.neg(x)), b.unary(OpCode::kLog, x));
    return std::vector<ValueId>{b.mul(cotangent, by_x), b.mul(cotangent, by_target)};
  };
  return with_derivative(call, {x, target}, value, derivative);
}

}  // namespace

ValueId binary_cross_entropy(const AtenCall& call) {
  constexpr int64_t kNone = 0, kMean = 1;
  Builder& b = call.builder;
  const DType dtype = computed_in(call.result.dtype);
  const ValueId x = call.cast(call.tensor(0), dtype);
  const ir::Shape shape = call.type(x).shape;
  const auto shown = [&](size_t i) { return call.expand(call.cast(call.tensor(i), dtype), shape); };
  ValueId loss = cross_entropy(call, x, shown(1));
  if (call.is_tensor(2)) loss = b.mul(loss, shown(2));
  if (call.integer(3) != kNone && !shape.empty()) {
    std::vector<int64_t> dims(shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    loss = b.reduce_sum(loss, std::move(dims));
    if (call.integer(3) == kMean) loss = b.div(loss, call.size(element_count(shape), dtype));
  }
  return call.cast(loss, call.result.dtype);
}

}  // namespace weft::importer
