#include "importer/complex.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "importer/aten_ops.h"

namespace weft::importer {

using ir::OpCode;
using ir::ValueId;

namespace {

/// The parts of a complex value in the IR.
struct Parts {
  ValueId re;
  std::optional<ValueId> im;
};

/// One ATen call with complex numbers.
class Call {
 public:
  Call(ir::Builder& builder, std::string_view op, const std::vector<ComplexArgument>& arguments, const ir::Type& result,
       bool is_complex)
      : builder(builder),
        op(op),
        arguments(arguments),
        result(result),
        is_complex(is_complex),
        plain_{builder, op, kNone, result} {}

  ir::Builder& builder;
  const std::string_view op;
  const std::vector<ComplexArgument>& arguments;
  const ir::Type& result;
  const bool is_complex;  ///< the result

  [[noreturn]] void refuse(std::string_view why) const { user_error("{} of complex numbers: {}", op, why); }
  const Complex* complex(size_t i) const { return std::get_if<Complex>(&arguments.at(i)); }
  /// Argument i; null if it is complex.
  const Argument* real(size_t i) const { return std::get_if<Argument>(&arguments.at(i)); }
  /// Argument i, a real number.
  double number(size_t i) const {
    const std::vector<Argument> alone{real(i) != nullptr ? *real(i) : Argument(Unknown())};
    return AtenCall{builder, op, alone, result}.number(0);
  }
  /// Argument i in the result's shape: the parts of a complex value, a real tensor or a number as a real value.
  Parts operand(size_t i) const { return operand(i, result.dtype); }
  Parts operand(size_t i, DType dtype) const;
  /// The parts of argument i as they are; user's error unless it is a complex value.
  Parts whole(size_t i) const;
  ValueId constant(double value) const { return constant(value, result.dtype); }
  ValueId constant(double value, DType dtype) const { return builder.constant(value, {dtype, result.shape}); }
  /// A real op of the importer.
  ValueId aten(std::string_view name, const std::vector<Argument>& given, const ir::Type& type) const {
    return import_aten({builder, name, given, type});
  }
  ValueId unary(OpCode code, ValueId x) const { return builder.unary(code, x); }
  ValueId add(ValueId a, ValueId b) const { return builder.binary(OpCode::kAdd, a, b); }
  ValueId sub(ValueId a, ValueId b) const { return builder.binary(OpCode::kSub, a, b); }
  ValueId mul(ValueId a, ValueId b) const { return builder.mul(a, b); }
  ValueId div(ValueId a, ValueId b) const { return builder.div(a, b); }
  ValueId neg(ValueId x) const { return unary(OpCode::kNeg, x); }
  /// The imaginary part, which may be a constant 0.
  ValueId imaginary(const Parts& x) const;
  const ir::Type& type(ValueId id) const { return builder.type(id); }
  ValueId shaped(ValueId value, DType dtype) const { return plain_.expand(plain_.cast(value, dtype), result.shape); }

 private:
  inline static const std::vector<Argument> kNone;
  AtenCall plain_;
};

Parts Call::whole(size_t i) const {
  const Complex* value = complex(i);
  if (value == nullptr) refuse("an argument that is real");
  return {value->re.id, value->im ? std::optional(value->im->id) : std::nullopt};
}

Parts Call::operand(size_t i, DType dtype) const {
  if (const Complex* value = complex(i)) {
    const auto part = [&](Value each) { return shaped(each.id, dtype); };
    return {part(value->re), value->im ? std::optional(part(*value->im)) : std::nullopt};
  }
  if (const auto* number = std::get_if<std::complex<double>>(&arguments.at(i))) {
    const ValueId re = constant(number->real(), dtype);
    return {re, number->imag() != 0 ? std::optional(constant(number->imag(), dtype)) : std::nullopt};
  }
  if (real(i) == nullptr) refuse("a list in a number's place");
  const std::vector<Argument> alone{*real(i)};
  return {AtenCall{builder, op, alone, result}.operand(0, dtype), std::nullopt};
}

ValueId Call::imaginary(const Parts& x) const { return x.im ? *x.im : builder.constant(0, ir::Type(type(x.re))); }

// ---- arithmetic on parts of one type

// Elementwise operations compute with a part that is 0, as PyTorch does: the zero's sign decides on which side of a
// branch cut a value lies (angle, log), and zero times infinity is NaN.

Parts sum(const Call& call, const Parts& a, const Parts& b) {
  return {call.add(a.re, b.re), call.add(call.imaginary(a), call.imaginary(b))};
}

Parts difference(const Call& call, const Parts& a, const Parts& b) {
  return {call.sub(a.re, b.re), call.sub(call.imaginary(a), call.imaginary(b))};
}

Parts negated(const Call& call, const Parts& x) { return {call.neg(x.re), call.neg(call.imaginary(x))}; }
Parts conjugate(const Call& call, const Parts& x) { return {x.re, call.neg(call.imaginary(x))}; }

Parts product(const Call& call, const Parts& a, const Parts& b) {
  const ValueId x = call.imaginary(a), y = call.imaginary(b);
  return {call.sub(call.mul(a.re, b.re), call.mul(x, y)), call.add(call.mul(a.re, y), call.mul(x, b.re))};
}

/// A product of matrices or vectors by a real op. Products with a part that is known to be 0 are left out.
Parts matrix_product(const Call& call, std::string_view op, const Parts& a, const Parts& b) {
  const auto times = [&](ValueId x, ValueId y) { return call.aten(op, {Value{x}, Value{y}}, call.result); };
  if (!a.im && !b.im) return {times(a.re, b.re), std::nullopt};
  if (!a.im) return {times(a.re, b.re), times(a.re, *b.im)};
  if (!b.im) return {times(a.re, b.re), times(*a.im, b.re)};
  return {call.sub(times(a.re, b.re), times(*a.im, *b.im)), call.add(times(a.re, *b.im), times(*a.im, b.re))};
}

/// (a + ib) / c, with the zeros' signs that the general quotient has: a / c + b 0, b / c - a 0.
Parts quotient_by_real(const Call& call, const Parts& a, ValueId c) {
  const ValueId im = call.imaginary(a), zero = call.builder.constant(0, ir::Type(call.type(c)));
  return {call.add(call.div(a.re, c), call.mul(im, zero)), call.sub(call.div(im, c), call.mul(a.re, zero))};
}

/// The quotient. The divisor is first divided by the larger of its parts, so that no square overflows. This factor
/// cancels out, so it counts as a constant in the derivative.
Parts quotient(const Call& call, const Parts& a, const Parts& b) {
  if (!b.im) return quotient_by_real(call, a, b.re);
  const ValueId larger =
      call.builder.binary(OpCode::kMaximum, call.unary(OpCode::kAbs, b.re), call.unary(OpCode::kAbs, *b.im));
  const ValueId factor = call.aten("weft.stop_gradient", {Value{larger}}, ir::Type(call.type(larger)));
  const Parts scaled{call.div(b.re, factor), call.div(*b.im, factor)};
  const ValueId norm = call.add(call.mul(b.re, scaled.re), call.mul(*b.im, *scaled.im));
  const Parts numerator = product(call, a, conjugate(call, scaled));
  return {call.div(numerator.re, norm), call.div(*numerator.im, norm)};
}

/// Whether both parts are 0.
ValueId is_zero(const Call& call, const Parts& x) {
  const ir::Type type{DType::kBool, call.type(x.re).shape};
  const ValueId re = call.aten("aten.eq.Scalar", {Value{x.re}, 0.0}, type);
  return call.builder.binary(OpCode::kAnd, re, call.aten("aten.eq.Scalar", {Value{call.imaginary(x)}, 0.0}, type));
}

/// x with 1 in the place of 0, where derivatives are infinite.
Parts without_zero(const Call& call, const Parts& x, ValueId zero) {
  const ValueId one = call.builder.constant(1, ir::Type(call.type(x.re)));
  return {call.builder.select(zero, one, x.re), x.im};
}

/// |x|, whose derivative at 0 is 0.
ValueId magnitude(const Call& call, const Parts& x) {
  const ir::Type type = call.type(x.re);
  const ValueId zero = is_zero(call, x);
  const Parts safe = without_zero(call, x, zero);
  const ValueId found = call.aten("aten.hypot.default", {Value{safe.re}, Value{call.imaginary(safe)}}, type);
  return call.builder.select(zero, call.builder.constant(0, type), found);
}

/// tanh(a + ib) = (tanh a + i sin b cos b (1 - tanh^2 a)) / (cos^2 b + tanh^2 a sin^2 b), in which nothing overflows.
Parts hyperbolic_tangent(const Call& call, const Parts& x) {
  const ValueId t = call.unary(OpCode::kTanh, x.re);
  if (!x.im) return {t, std::nullopt};
  const ValueId s = call.unary(OpCode::kSin, *x.im), c = call.unary(OpCode::kCos, *x.im);
  const ValueId one = call.builder.constant(1, ir::Type(call.type(t)));
  const ValueId rest = call.mul(call.sub(one, t), call.add(one, t));
  const ValueId ts = call.mul(t, s);
  const ValueId norm = call.add(call.mul(c, c), call.mul(ts, ts));
  return {call.div(t, norm), call.div(call.mul(call.mul(s, c), rest), norm)};
}

// ---- handlers

using Handler = ComplexResult (*)(const Call&);

ComplexResult result_of(const Parts& parts) {
  return Complex{{parts.re}, parts.im ? std::optional(Value{*parts.im}) : std::nullopt};
}

/// The same values. If some of them have imaginary parts, the others get imaginary parts of zeros.
std::vector<Complex> even(const Call& call, std::vector<Complex> values) {
  const auto has_im = [](const Complex& value) { return value.im.has_value(); };
  if (std::ranges::none_of(values, has_im)) return values;
  for (Complex& value : values)
    if (!value.im) value.im = Value{call.builder.constant(0, ir::Type(call.type(value.re.id)))};
  return values;
}

/// An op that does the same to both parts: it moves values, or is linear in all complex arguments together. Real
/// tensors among the arguments are indices or masks.
ComplexResult part_by_part(const Call& call) {
  std::vector<Complex> all;
  for (const ComplexArgument& argument : call.arguments) {
    if (const auto* one = std::get_if<Complex>(&argument)) all.push_back(*one);
    if (const auto* several = std::get_if<std::vector<Complex>>(&argument))
      all.insert(all.end(), several->begin(), several->end());
    if (std::holds_alternative<std::complex<double>>(argument)) call.refuse("a complex number in a real one's place");
  }
  all = even(call, std::move(all));
  if (all.empty()) call.refuse("arguments that are real");
  const auto part = [&](bool imaginary) {
    size_t next = 0;
    const auto take = [&] {
      const Complex& value = all[next++];
      return imaginary ? *value.im : value.re;
    };
    std::vector<Argument> arguments;
    for (const ComplexArgument& argument : call.arguments) {
      if (std::holds_alternative<Complex>(argument)) {
        arguments.emplace_back(take());
      } else if (const auto* several = std::get_if<std::vector<Complex>>(&argument)) {
        std::vector<Value> values;
        for (size_t i = 0; i < several->size(); ++i) values.push_back(take());
        arguments.emplace_back(std::move(values));
      } else {
        arguments.push_back(std::get<Argument>(argument));
      }
    }
    return call.aten(call.op, arguments, call.result);
  };
  return result_of({part(false), all[0].im ? std::optional(part(true)) : std::nullopt});
}

/// The value in the result's dtype. If the result is real, a complex value gives its real part.
ComplexResult same(const Call& call) {
  if (call.result.dtype == DType::kBool) call.refuse("a cast to bool");
  const Parts x = call.operand(0);
  if (!call.is_complex) return Value{x.re};
  return result_of(x);
}

/// Padding with zeros.
ComplexResult padded(const Call& call) {
  if (call.number(2) != 0) call.refuse("another value than 0");
  return part_by_part(call);
}

/// Whether argument i is this integer.
bool is_number(const Call& call, size_t i, int64_t number) {
  const Argument* real = call.real(i);
  const auto* integer = real != nullptr ? std::get_if<int64_t>(real) : nullptr;
  return integer != nullptr && *integer == number;
}

/// b times alpha, argument 2.
Parts times_alpha(const Call& call, const Parts& b) {
  return is_number(call, 2, 1) ? b : product(call, b, call.operand(2));
}

ComplexResult add(const Call& call) {
  return result_of(sum(call, call.operand(0), times_alpha(call, call.operand(1))));
}
ComplexResult subtract(const Call& call) {
  return result_of(difference(call, call.operand(0), times_alpha(call, call.operand(1))));
}
ComplexResult subtract_reversed(const Call& call) {
  return result_of(difference(call, call.operand(1), times_alpha(call, call.operand(0))));
}
ComplexResult multiply(const Call& call) { return result_of(product(call, call.operand(0), call.operand(1))); }
ComplexResult divide(const Call& call) { return result_of(quotient(call, call.operand(0), call.operand(1))); }
ComplexResult reciprocal(const Call& call) {
  return result_of(quotient(call, {call.constant(1), std::nullopt}, call.operand(0)));
}
ComplexResult negate(const Call& call) { return result_of(negated(call, call.operand(0))); }
ComplexResult conj(const Call& call) { return result_of(conjugate(call, call.operand(0))); }
ComplexResult square(const Call& call) {
  const Parts x = call.operand(0);
  return result_of(product(call, x, x));
}

/// A small whole power, as products.
ComplexResult power(const Call& call) {
  constexpr double kLargest = 8;
  if (call.real(1) == nullptr) call.refuse("an exponent that is complex");
  const double n = call.number(1);
  if (n != std::trunc(n) || std::abs(n) > kLargest || n == 0) call.refuse("an exponent that is no small integer");
  const Parts x = call.operand(0);
  Parts found = x;
  for (int i = 1; i < std::abs(static_cast<int>(n)); ++i) found = product(call, found, x);
  return result_of(n > 0 ? found : quotient(call, {call.constant(1), std::nullopt}, found));
}

ComplexResult matrices(const Call& call) {
  return result_of(matrix_product(call, call.op, call.whole(0), call.whole(1)));
}

/// beta * x + alpha * a b: arguments x, a, b, beta, alpha. x is ignored if beta is 0.
ComplexResult added_matrices(const Call& call) {
  const std::string_view name = call.op == "aten.addmm.default" ? "aten.mm.default" : "aten.bmm.default";
  const Parts found = matrix_product(call, name, call.whole(1), call.whole(2));
  const Parts scaled = is_number(call, 4, 1) ? found : product(call, found, call.operand(4));
  if (is_number(call, 3, 0)) return result_of(scaled);
  return result_of(
      sum(call, is_number(call, 3, 1) ? call.operand(0) : product(call, call.operand(0), call.operand(3)), scaled));
}

/// Chooses by argument 0 between arguments 1 and 2.
Parts chosen(const Call& call, size_t condition, size_t yes, size_t no) {
  const Argument* real = call.real(condition);
  const Value* mask = real != nullptr ? std::get_if<Value>(real) : nullptr;
  if (mask == nullptr) call.refuse("a condition that is no tensor");
  const ValueId where = call.shaped(mask->id, DType::kBool);
  const Parts a = call.operand(yes), b = call.operand(no);
  const ValueId re = call.builder.select(where, a.re, b.re);
  if (!a.im && !b.im) return {re, std::nullopt};
  return {re, call.builder.select(where, call.imaginary(a), call.imaginary(b))};
}

ComplexResult where(const Call& call) { return result_of(chosen(call, 0, 1, 2)); }
ComplexResult masked_fill(const Call& call) { return result_of(chosen(call, 1, 2, 0)); }

/// A tensor of one number, which is argument `Number`.
template <size_t Number>
ComplexResult filled(const Call& call) {
  const Parts number = call.operand(Number);
  if (!call.is_complex) return Value{number.re};
  return result_of(number);
}

template <int Number>
ComplexResult of_number(const Call& call) {
  if (!call.is_complex) return Value{call.constant(Number)};
  return result_of({call.constant(Number), std::nullopt});
}

ComplexResult of_parts(const Call& call) { return result_of({call.operand(0).re, call.operand(1).re}); }
ComplexResult polar(const Call& call) {
  const ValueId r = call.operand(0).re, angle = call.operand(1).re;
  return result_of({call.mul(r, call.unary(OpCode::kCos, angle)), call.mul(r, call.unary(OpCode::kSin, angle))});
}

ComplexResult exponential(const Call& call) {
  const Parts x = call.operand(0);
  const ValueId r = call.unary(OpCode::kExp, x.re);
  if (!x.im) return result_of({r, std::nullopt});
  return result_of({call.mul(r, call.unary(OpCode::kCos, *x.im)), call.mul(r, call.unary(OpCode::kSin, *x.im))});
}

/// f(re) g(im) + i h(re) k(im)
Parts separated(const Call& call, std::string_view f, std::string_view g, std::string_view h, std::string_view k) {
  const Parts x = call.operand(0);
  const auto of = [&](std::string_view op, ValueId part) { return call.aten(op, {Value{part}}, call.result); };
  const ValueId im = call.imaginary(x);
  return {call.mul(of(f, x.re), of(g, im)), call.mul(of(h, x.re), of(k, im))};
}

constexpr std::string_view kSin = "aten.sin.default", kCos = "aten.cos.default", kSinh = "aten.sinh.default",
                           kCosh = "aten.cosh.default";

ComplexResult sine(const Call& call) { return result_of(separated(call, kSin, kCosh, kCos, kSinh)); }
ComplexResult cosine(const Call& call) {
  const Parts found = separated(call, kCos, kCosh, kSin, kSinh);
  return result_of({found.re, call.neg(*found.im)});
}
ComplexResult hyperbolic_sine(const Call& call) { return result_of(separated(call, kSinh, kCos, kCosh, kSin)); }
ComplexResult hyperbolic_cosine(const Call& call) { return result_of(separated(call, kCosh, kCos, kSinh, kSin)); }

/// log |x| + i angle(x)
ComplexResult logarithm(const Call& call) {
  const Parts x = call.operand(0);
  const Argument re = Value{x.re}, im = Value{call.imaginary(x)};
  return result_of({call.unary(OpCode::kLog, call.aten("aten.hypot.default", {re, im}, call.result)),
                    call.aten("aten.atan2.default", {im, re}, call.result)});
}

ComplexResult tanh(const Call& call) { return result_of(hyperbolic_tangent(call, call.operand(0))); }

/// 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2
ComplexResult sigmoid(const Call& call) {
  const Parts half{call.constant(0.5), std::nullopt}, one{call.constant(1), std::nullopt};
  const Parts t = hyperbolic_tangent(call, product(call, call.operand(0), half));
  return result_of(product(call, sum(call, t, one), half));
}

ComplexResult sign(const Call& call) {
  const Parts x = call.operand(0);
  const ValueId zero = is_zero(call, x), none = call.constant(0);
  const Parts safe = without_zero(call, x, zero);
  const ValueId size = magnitude(call, safe);
  const auto part = [&](ValueId each) { return call.builder.select(zero, none, call.div(each, size)); };
  return result_of({part(safe.re), part(call.imaginary(safe))});
}

ComplexResult absolute(const Call& call) { return Value{magnitude(call, call.operand(0))}; }

/// The angle, whose derivative at 0 is 0.
ComplexResult angle(const Call& call) {
  const Parts x = call.operand(0);
  const ValueId zero = is_zero(call, x);
  const auto of = [&](const Parts& parts) {
    return call.aten("aten.atan2.default", {Value{call.imaginary(parts)}, Value{parts.re}}, call.result);
  };
  const ValueId at_zero = call.aten("weft.stop_gradient", {Value{of(x)}}, call.result);
  return Value{call.builder.select(zero, at_zero, of(without_zero(call, x, zero)))};
}

/// Whether argument 0 equals argument 1 or, without `Equal`, differs from it. The parts are compared in the widest
/// dtype that a part has.
template <bool Equal>
ComplexResult compare(const Call& call) {
  DType dtype = DType::kF32;
  for (size_t i = 0; i < 2; ++i) {
    const Complex* value = call.complex(i);
    if (value == nullptr && !std::holds_alternative<std::complex<double>>(call.arguments[i]))
      call.refuse("a comparison with a real value");
    if (value != nullptr && call.type(value->re.id).dtype == DType::kF64) dtype = DType::kF64;
  }
  const Parts a = call.operand(0, dtype), b = call.operand(1, dtype);
  const auto part = [&](ValueId x, ValueId y) {
    return call.aten(Equal ? "aten.eq.Tensor" : "aten.ne.Tensor", {Value{x}, Value{y}}, call.result);
  };
  const ValueId re = part(a.re, b.re), im = part(call.imaginary(a), call.imaginary(b));
  return Value{call.builder.binary(Equal ? OpCode::kAnd : OpCode::kOr, re, im)};
}

/// Whether one of the parts is NaN or infinite.
ComplexResult either_part(const Call& call) {
  const Parts x = call.whole(0);
  const ValueId re = call.aten(call.op, {Value{x.re}}, call.result);
  return Value{x.im ? call.builder.binary(OpCode::kOr, re, call.aten(call.op, {Value{*x.im}}, call.result)) : re};
}

ComplexResult as_real(const Call& call) {
  const Parts x = call.whole(0);
  return Value{to_pairs(call.builder, {{x.re}, x.im ? std::optional(Value{*x.im}) : std::nullopt})};
}

ComplexResult as_complex(const Call& call) {
  const Argument* real = call.real(0);
  const Value* pairs = real != nullptr ? std::get_if<Value>(real) : nullptr;
  if (pairs == nullptr) call.refuse("an argument that is no tensor");
  return from_pairs(call.builder, *pairs);
}

/// Ops that treat each part of a complex value as they treat a real value.
constexpr std::string_view kPartByPart[] = {
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten._reshape_alias.default",
    "aten.reshape.default",
    "aten.view_copy.default",
    "aten.permute.default",
    "aten.transpose.int",
    "aten.t.default",
    "aten.expand.default",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.cat.default",
    "aten.stack.default",
    "aten.flip.default",
    "aten.roll.default",
    "aten.repeat.default",
    "aten.index_select.default",
    "aten.gather.default",
    "aten.index.Tensor",
    "aten.sum.default",
    "aten.sum.dim_IntList",
    "aten.mean.default",
    "aten.mean.dim",
    "aten.tril.default",
    "aten.triu.default",
    "aten.slice_scatter.default",
    "aten.select_scatter.default",
    "aten.index_put.default",
    "aten.index_add.default",
    "aten.scatter_add.default",
    "aten.unsqueeze_copy.default",
    "aten.scatter.src",
    "aten.index_copy.default",
};

std::map<std::string_view, Handler> make_handlers() {
  std::map<std::string_view, Handler> handlers{
      {"weft.stop_gradient", part_by_part},
      {"aten.alias.default", same},
      {"aten.clone.default", same},
      {"aten.contiguous.default", same},
      {"aten.detach.default", same},
      {"aten.lift_fresh.default", same},
      {"aten.lift_fresh_copy.default", same},
      {"aten.resolve_conj.default", same},
      {"aten._to_copy.default", same},
      {"aten.copy.default", filled<1>},
      {"aten.fill.Scalar", filled<1>},
      {"aten.fill.Tensor", filled<1>},
      {"aten.full.default", filled<1>},
      {"aten.full_like.default", filled<1>},
      {"aten.new_full.default", filled<2>},
      {"aten.scalar_tensor.default", filled<0>},
      {"aten.zero.default", of_number<0>},
      {"aten.zeros.default", of_number<0>},
      {"aten.zeros_like.default", of_number<0>},
      {"aten.new_zeros.default", of_number<0>},
      {"aten.empty.memory_format", of_number<0>},
      {"aten.empty_like.default", of_number<0>},
      {"aten.new_empty.default", of_number<0>},
      {"aten.ones.default", of_number<1>},
      {"aten.ones_like.default", of_number<1>},
      {"aten.new_ones.default", of_number<1>},
      {"aten.add.Tensor", add},
      {"aten.add.Scalar", add},
      {"aten.sub.Tensor", subtract},
      {"aten.sub.Scalar", subtract},
      {"aten.rsub.Tensor", subtract_reversed},
      {"aten.rsub.Scalar", subtract_reversed},
      {"aten.mul.Tensor", multiply},
      {"aten.mul.Scalar", multiply},
      {"aten.div.Tensor", divide},
      {"aten.div.Scalar", divide},
      {"aten.reciprocal.default", reciprocal},
      {"aten.neg.default", negate},
      {"aten._conj.default", conj},
      {"aten._conj_physical.default", conj},
      {"aten.conj_physical.default", conj},
      {"aten.square.default", square},
      {"aten.pow.Tensor_Scalar", power},
      {"aten.exp.default", exponential},
      {"aten.log.default", logarithm},
      {"aten.sin.default", sine},
      {"aten.cos.default", cosine},
      {"aten.sinh.default", hyperbolic_sine},
      {"aten.cosh.default", hyperbolic_cosine},
      {"aten.tanh.default", tanh},
      {"aten.sigmoid.default", sigmoid},
      {"aten.sgn.default", sign},
      {"aten.abs.default", absolute},
      {"aten.angle.default", angle},
      {"aten.complex.default", of_parts},
      {"aten.polar.default", polar},
      {"aten.view_as_real.default", as_real},
      {"aten.view_as_complex.default", as_complex},
      {"aten.mm.default", matrices},
      {"aten.bmm.default", matrices},
      {"aten.mv.default", matrices},
      {"aten.dot.default", matrices},
      {"aten.addmm.default", added_matrices},
      {"aten.baddbmm.default", added_matrices},
      {"aten.where.self", where},
      {"aten.where.ScalarSelf", where},
      {"aten.where.ScalarOther", where},
      {"aten.where.Scalar", where},
      {"aten.masked_fill.Scalar", masked_fill},
      {"aten.masked_fill.Tensor", masked_fill},
      {"aten.constant_pad_nd.default", padded},
      {"aten.eq.Tensor", compare<true>},
      {"aten.eq.Scalar", compare<true>},
      {"aten.ne.Tensor", compare<false>},
      {"aten.ne.Scalar", compare<false>},
      {"aten.isnan.default", either_part},
      {"aten.isinf.default", either_part},
  };
  for (std::string_view op : kPartByPart) handlers.emplace(op, part_by_part);
  return handlers;
}

/// Made at load (base/fork.h), never destroyed.
const std::map<std::string_view, Handler>& handlers = *new std::map<std::string_view, Handler>(make_handlers());

/// The elements at `place`, 0 or 1, of all pairs along the last dim.
Value of_pairs(ir::Builder& builder, Value pairs, int64_t place) {
  ir::Shape shape = builder.type(pairs.id).shape;
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  shape.pop_back();
  return {builder.reshape(builder.slice(pairs.id, last, place, place + 1), shape)};
}

}  // namespace

Complex from_pairs(ir::Builder& builder, Value pairs) {
  return {of_pairs(builder, pairs, 0), of_pairs(builder, pairs, 1)};
}

Value to_pairs(ir::Builder& builder, const Complex& value) {
  const ir::Type type = builder.type(value.re.id);
  const ValueId im = value.im ? value.im->id : builder.constant(0, type);
  ir::Shape shape = type.shape;
  shape.emplace_back(1);
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  return {builder.concat({builder.reshape(value.re.id, shape), builder.reshape(im, shape)}, last)};
}

bool knows_complex(std::string_view op) { return handlers.contains(op); }

ComplexResult import_complex(ir::Builder& builder, std::string_view op, const std::vector<ComplexArgument>& arguments,
                             const ir::Type& result, bool is_complex) {
  const auto handler = handlers.find(op);
  check(handler != handlers.end(), "{} of complex numbers", op);
  const ComplexResult found = handler->second(Call(builder, op, arguments, result, is_complex));
  check(std::holds_alternative<Complex>(found) == is_complex, "{}: a result of another dtype", op);
  return found;
}

}  // namespace weft::importer
