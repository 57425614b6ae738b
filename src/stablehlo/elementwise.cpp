// Sources and elementwise ops. A lowering to several ops computes 16-bit floating types in f32 and rounds once, as the
// IR's semantics want.
#include <cmath>
#include <limits>
#include <numbers>

#include "stablehlo/lowerings.h"
#include "stablehlo/write.h"

namespace weft::stablehlo::lowerings {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The operand, cast to the type in which the op computes.
Tensor loaded(const Site& site, size_t i) {
  const Tensor operand = site.operand(i);
  return site.emit().convert(operand, compute_type(operand.type.dtype));
}

void store(const Site& site, const Tensor& result) { site.done(site.emit().convert(result, site.type().dtype)); }

void scaled_log(const Site& site, double factor) {
  const Tensor log = site.emit().unary("log", loaded(site, 0));
  store(site, site.emit().binary("multiply", log, site.emit().like(factor, log)));
}

/// x truncated and saturated, 0 for NaN. StableHLO leaves open what a conversion gives for numbers out of range and
/// NaN.
Tensor to_integer(Emitter& emit, const Tensor& x, DType to) {
  const int bits = static_cast<int>(8 * size_of(to)) - (to == DType::kU8 ? 0 : 1);
  const TensorType type{to, x.type.sizes};
  const Tensor zero = emit.like(0, x);
  const Tensor above = emit.compare("GE", x, emit.like(std::ldexp(1, bits), x));
  const Tensor below = emit.compare("LE", x, emit.like(to == DType::kU8 ? 0 : -std::ldexp(1, bits), x));
  const Tensor least = emit.least(type);
  // The greatest integer has the inverted bits of the least. No double holds the greatest i64.
  const Tensor most = emit.unary("not", least);
  Tensor result = emit.convert(emit.select(emit.compare("EQ", x, x), x, zero), to);
  result = emit.select(above, most, result);
  return emit.select(below, least, result);
}

}  // namespace

void direct(const Site& site) {
  const std::string_view op = lowered_as(site.op.code);
  site.done(site.op.operands.size() == 1 ? site.emit().unary(op, site.operand(0))
                                         : site.emit().binary(op, site.operand(0), site.operand(1)));
}

void constant(const Site& site) { site.done(site.emit().constant(site.op.attr<double>("value"), site.type())); }

void iota(const Site& site) {
  TensorType numbers = site.type();
  const DType dtype = numbers.dtype;
  if (dtype != DType::kI32) numbers.dtype = DType::kI64;
  site.done(site.emit().convert(site.emit().iota(numbers, site.dim()), dtype));
}

void size(const Site& site) {
  const auto& dim = site.op.attr<ir::Dim>("of");
  const TensorType whole{DType::kI64, {}};
  const Tensor number{site.emit().new_name(), whole};
  site.emit().line(number.name + " = stablehlo.constant dense<" + std::to_string(site.writer.size(dim)) +
                   "> : " + to_string(whole));
  site.done(site.emit().convert(number, site.type().dtype));
}

void copy(const Site& site) { site.done(site.operand(0)); }

void abs(const Site& site) {
  site.done(site.type().dtype == DType::kU8 ? site.operand(0) : site.emit().unary("abs", site.operand(0)));
}

/// StableHLO's sign is NaN for NaN; the IR's is 0.
void sign(const Site& site) {
  const Tensor x = site.operand(0), zero = site.emit().like(0, x);
  const Tensor above = site.emit().convert(site.emit().compare("GT", x, zero), x.type.dtype);
  const Tensor below = site.emit().convert(site.emit().compare("LT", x, zero), x.type.dtype);
  site.done(site.emit().binary("subtract", above, below));
}

void relu(const Site& site) {
  const Tensor x = site.operand(0), zero = site.emit().like(0, x);
  site.done(site.emit().select(site.emit().compare("LT", x, zero), zero, x));
}

void trunc(const Site& site) {
  const Tensor x = site.operand(0);
  const Tensor negative = site.emit().compare("LT", x, site.emit().like(0, x));
  const Tensor up = site.emit().unary("ceil", x);
  site.done(site.emit().select(negative, up, site.emit().unary("floor", x)));
}

void log2(const Site& site) { scaled_log(site, std::numbers::log2e); }
void log10(const Site& site) { scaled_log(site, std::numbers::log10e); }
void erf(const Site& site) { store(site, site.emit().chlo("erf", loaded(site, 0))); }
void erfc(const Site& site) { store(site, site.emit().chlo("erfc", loaded(site, 0))); }

void cast(const Site& site) {
  Emitter& emit = site.emit();
  const Tensor from = site.operand(0);
  const DType to = site.type().dtype;
  if (from.type.dtype == to) return site.done(from);
  if (to == DType::kBool) return site.done(emit.compare("NE", from, emit.like(0, from)));
  const Tensor x = loaded(site, 0);
  if (is_floating(x.type.dtype) && !is_floating(to)) return site.done(to_integer(emit, x, to));
  site.done(emit.convert(emit.convert(x, compute_type(to)), to));  // to 16 bits by way of f32
}

/// max sqrt(1 + (min / max)^2): no square overflows.
void hypot(const Site& site) {
  Emitter& emit = site.emit();
  const Tensor a = emit.unary("abs", loaded(site, 0)), b = emit.unary("abs", loaded(site, 1));
  const Tensor most = emit.binary("maximum", a, b), least = emit.binary("minimum", a, b);
  const Tensor ratio = emit.binary("divide", least, most);
  const Tensor square = emit.binary("multiply", ratio, ratio);
  const Tensor root = emit.unary("sqrt", emit.binary("add", emit.like(1, square), square));
  const Tensor length = emit.binary("multiply", most, root);
  const Tensor infinity = emit.like(kInfinity, a), zero = emit.like(0, a);
  const Tensor is_infinite =
      emit.binary("or", emit.compare("EQ", a, infinity), emit.compare("EQ", b, infinity));  // beside NaN too
  const Tensor at_origin = emit.compare("EQ", most, zero);
  store(site, emit.select(is_infinite, infinity, emit.select(at_origin, zero, length)));
}

void logaddexp(const Site& site) {
  Emitter& emit = site.emit();
  const Tensor a = loaded(site, 0), b = loaded(site, 1);
  const Tensor distance = emit.unary("abs", emit.binary("subtract", a, b));
  // The difference of equal infinities would be NaN.
  const Tensor apart = emit.select(emit.compare("EQ", a, b), emit.like(0, a), distance);
  const Tensor rest = emit.unary("log_plus_one", emit.unary("exponential", emit.unary("negate", apart)));
  store(site, emit.binary("add", emit.binary("maximum", a, b), rest));
}

void compare(const Site& site) {
  std::string direction(site.name());  // eq, ne, lt, le, gt, ge
  for (char& c : direction) c = static_cast<char>(c - 'a' + 'A');
  site.done(site.emit().compare(direction, site.operand(0), site.operand(1)));
}

void select(const Site& site) { site.done(site.emit().select(site.operand(0), site.operand(1), site.operand(2))); }

}  // namespace weft::stablehlo::lowerings
