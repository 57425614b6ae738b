#include "passes/differentiation/vjp_rules.h"

#include <algorithm>
#include <numbers>

namespace weft::passes::vjp_rules {

using ir::Attrs;
using ir::Builder;
using ir::Op;
using ir::OpCode;
using ir::Type;
using ir::ValueId;
using Dims = std::vector<int64_t>;

namespace {

/// Short names for the rules of ops with one result: operands, result, cotangent.
struct Rule1 {
  Adjoints& adjoints;
  Op& op;
  Builder& b;
  ValueId ct, y;

  Rule1(Adjoints& a, Op& o) : adjoints(a), op(o), b(a.builder()), ct(a.cotangent(o.results[0])), y(o.results[0]) {}
  ValueId x(size_t i = 0) const { return op.operands[i]; }
  /// The op's result, as autograd saves it for the derivative.
  ValueId saved() const { return adjoints.shown(op.results[0]); }
  bool wants(size_t i) const { return adjoints.wants(x(i)); }
  void give(size_t i, ValueId cotangent) const { adjoints.accumulate(x(i), cotangent); }
  Type type(ValueId v) const { return b.type(v); }
  ValueId like(double value, ValueId v) const { return b.constant(value, type(v)); }
  ValueId compare(OpCode code, ValueId left, ValueId right) const { return b.binary(code, left, right); }
};

/// dims of a result that a reduction over `dims` keeps.
Dims kept_dims(int64_t rank, const Dims& dims) {
  Dims kept;
  for (int64_t i = 0; i < rank; ++i)
    if (!std::binary_search(dims.begin(), dims.end(), i)) kept.push_back(i);
  return kept;
}

}  // namespace

Rule rule(OpCode code) {
  static constexpr Rule kRules[] = {
#define WEFT_OP(Enum, text, arity, Class, type_rule, vjp_rule, ...) vjp_rule,
#include "ir/ops.def"
  };
  const Rule found = kRules[static_cast<size_t>(code)];
  return found == none ? nullptr : found;
}

void none(Adjoints&, Op&) {}

void copy(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.ct);
}

void neg(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.neg(r.ct));
}

void abs(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.mul(r.ct, r.b.unary(OpCode::kSign, r.x())));
}

void exp(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const ValueId y = r.saved();
  r.give(0, r.b.mul(r.ct, y));
}

void expm1(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const ValueId y = r.saved();
  r.give(0, r.b.mul(r.ct, r.b.add(y, r.like(1, y))));
}

void log(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.div(r.ct, r.x()));
}

void log2(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.div(r.ct, r.b.mul(r.x(), r.like(std::numbers::ln2, r.x()))));
}

void log10(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.div(r.ct, r.b.mul(r.x(), r.like(std::numbers::ln10, r.x()))));
}

void log1p(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.div(r.ct, r.b.add(r.x(), r.like(1, r.x()))));
}

void sqrt(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const ValueId y = r.saved();
  r.give(0, r.b.div(r.ct, r.b.mul(y, r.like(2, y))));
}

/// -1/2 x^(-3/2)
void rsqrt(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const ValueId y = r.saved();
  ValueId cube = r.b.mul(r.b.mul(y, y), y);
  r.give(0, r.b.mul(r.b.mul(r.ct, r.like(-0.5, y)), cube));
}

void tanh(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const ValueId y = r.saved();
  r.give(0, r.b.mul(r.ct, r.b.sub(r.like(1, y), r.b.mul(y, y))));
}

void sigmoid(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const ValueId y = r.saved();
  r.give(0, r.b.mul(r.ct, r.b.mul(r.b.sub(r.like(1, y), y), y)));
}

/// As PyTorch: the cotangent passes unless the result is <= 0 (so it passes where the result is NaN).
void relu(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  ValueId zero = r.like(0, r.y);
  r.give(0, r.b.select(r.compare(OpCode::kLe, r.y, zero), zero, r.ct));
}

void sin(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.mul(r.ct, r.b.unary(OpCode::kCos, r.x())));
}

void cos(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.neg(r.b.mul(r.ct, r.b.unary(OpCode::kSin, r.x()))));
}

namespace {

/// scale e^(-x^2)
void bell(const Rule1& r, double scale) {
  ValueId curve = r.b.unary(OpCode::kExp, r.b.neg(r.b.mul(r.x(), r.x())));
  r.give(0, r.b.mul(r.ct, r.b.mul(curve, r.like(scale, r.x()))));
}

}  // namespace

void erf(Adjoints& adjoints, Op& op) { bell(Rule1(adjoints, op), 2 * std::numbers::inv_sqrtpi); }
void erfc(Adjoints& adjoints, Op& op) { bell(Rule1(adjoints, op), -2 * std::numbers::inv_sqrtpi); }

void cast(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  if (!r.wants(0)) return;
  const DType from = r.type(r.x()).dtype;
  const bool loose = op.attr_or<bool>(ir::kExcessPrecision, false);
  r.give(0, loose ? r.b.cast_loosely(r.ct, from) : r.b.cast(r.ct, from));
}

void add(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.ct);
  r.give(1, r.ct);
}

void sub(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.ct);
  if (r.wants(1)) r.give(1, r.b.neg(r.ct));
}

void mul(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  if (r.wants(0)) r.give(0, r.b.mul(r.ct, r.x(1)));
  if (r.wants(1)) r.give(1, r.b.mul(r.ct, r.x(0)));
}

void div(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  if (r.wants(0)) r.give(0, r.b.div(r.ct, r.x(1)));
  // As PyTorch: ct / x1 may overflow where the quotient by x1 doesn't.
  if (r.wants(1)) r.give(1, r.b.neg(r.b.mul(r.ct, r.b.div(r.y, r.x(1)))));
}

void rem(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.ct);
  if (r.wants(1)) r.give(1, r.b.neg(r.b.mul(r.ct, r.b.unary(OpCode::kTrunc, r.b.div(r.x(0), r.x(1))))));
}

/// NaN at the origin, where there is no derivative, as in PyTorch.
void hypot(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  for (size_t i : {0, 1})
    if (r.wants(i)) r.give(i, r.b.mul(r.ct, r.b.div(r.x(i), r.y)));
}

/// exp(a - y) = sigmoid(a - b), and never overflows. Of equal infinities NaN, as in PyTorch.
void logaddexp(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  for (size_t i : {0, 1})
    if (r.wants(i)) r.give(i, r.b.mul(r.ct, r.b.unary(OpCode::kSigmoid, r.b.sub(r.x(i), r.x(1 - i)))));
}

void atan2(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  ValueId y = r.x(0), x = r.x(1);
  ValueId square = r.b.add(r.b.mul(y, y), r.b.mul(x, x));
  ValueId zero = r.like(0, y);
  ValueId scaled = r.b.select(r.compare(OpCode::kEq, square, zero), zero, r.b.div(r.ct, square));
  if (r.wants(0)) r.give(0, r.b.mul(scaled, x));
  if (r.wants(1)) r.give(1, r.b.neg(r.b.mul(scaled, y)));
}

/// d a = b a^(b-1), 0 where b = 0; d b = a^b log a, 0 where a = 0 and b >= 0.
void pow(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  ValueId a = r.x(0), b = r.x(1);
  ValueId zero = r.like(0, a);
  if (r.wants(0)) {
    ValueId slope = r.b.mul(b, r.b.binary(OpCode::kPow, a, r.b.sub(b, r.like(1, b))));
    r.give(0, r.b.select(r.compare(OpCode::kEq, b, zero), zero, r.b.mul(r.ct, slope)));
  }
  if (r.wants(1)) {
    ValueId slope = r.b.mul(r.y, r.b.unary(OpCode::kLog, a));
    ValueId flat = r.b.binary(OpCode::kAnd, r.compare(OpCode::kEq, a, zero), r.compare(OpCode::kGe, b, zero));
    r.give(1, r.b.select(flat, zero, r.b.mul(r.ct, slope)));
  }
}

namespace {

/// maximum and minimum: the operand that is not chosen (`loses` against the other) gets no gradient; at a tie each gets
/// half.
void choice(const Rule1& r, size_t i, OpCode loses) {
  if (!r.wants(i)) return;
  ValueId mine = r.x(i), other = r.x(1 - i);
  ValueId half = r.b.mul(r.ct, r.like(0.5, r.ct));
  ValueId shared = r.b.select(r.compare(OpCode::kEq, mine, other), half, r.ct);
  r.give(i, r.b.select(r.compare(loses, mine, other), r.like(0, r.ct), shared));
}

}  // namespace

void maximum(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  choice(r, 0, OpCode::kLt);
  choice(r, 1, OpCode::kLt);
}

void minimum(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  choice(r, 0, OpCode::kGt);
  choice(r, 1, OpCode::kGt);
}

void select(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  ValueId zero = r.like(0, r.ct);
  if (r.wants(1)) r.give(1, r.b.select(r.x(0), r.ct, zero));
  if (r.wants(2)) r.give(2, r.b.select(r.x(0), zero, r.ct));
}

void broadcast(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.reduce_sum(r.ct, kept_dims(r.type(r.y).rank(), op.attr<Dims>("dims"))));
}

void reshape(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.reshape(r.ct, r.type(r.x()).shape));
}

void transpose(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const Dims& perm = op.attr<Dims>("perm");
  Dims inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  r.give(0, r.b.transpose(r.ct, std::move(inverse)));
}

void slice(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  int64_t dim = op.attr<int64_t>("dim");
  const ir::Dim size = r.type(r.x()).shape[static_cast<size_t>(dim)];
  Attrs attrs{{"dim", dim}, {"low", op.attrs.at("start")}, {"high", as_attr(size - size_attr(op, "limit"))}};
  r.give(0, r.b.emit(OpCode::kPad, {r.ct}, std::move(attrs)));
}

void pad(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  int64_t dim = op.attr<int64_t>("dim");
  const ir::Dim low = size_attr(op, "low"), size = r.type(r.x()).shape[static_cast<size_t>(dim)];
  r.give(0, r.b.slice(r.ct, dim, low, low + size));
}

void concat(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  if (op.operands.size() == 1) return r.give(0, r.ct);
  int64_t dim = op.attr<int64_t>("dim");
  ir::Dim start(0);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ir::Dim limit = start + r.type(r.x(i)).shape[static_cast<size_t>(dim)];
    if (r.wants(i)) r.give(i, r.b.slice(r.ct, dim, start, limit));
    start = limit;
  }
}

void reverse(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  r.give(0, r.b.emit(OpCode::kReverse, {r.ct}, op.attrs));
}

void gather(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  Type table = r.type(r.x(0));
  if (r.wants(0)) r.give(0, r.b.emit(OpCode::kScatterAdd, {r.x(1), r.ct}, {}, &table));
}

void scatter_add(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  if (r.wants(1)) r.give(1, r.b.emit(OpCode::kGather, {r.ct, r.x(0)}));
}

/// As PyTorch: each of several updates of one row gets that row's cotangent.
void scatter(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  ValueId index = r.x(1);
  if (r.wants(0)) r.give(0, r.b.emit(OpCode::kScatter, {r.ct, index, r.like(0, r.x(2))}));
  if (r.wants(2)) r.give(2, r.b.emit(OpCode::kGather, {r.ct, index}));
}

void dynamic_slice(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  if (r.wants(0))
    r.give(0, r.b.emit(OpCode::kDynamicUpdate, {r.like(0, r.x(0)), r.ct, r.x(1)}, {{"dim", op.attrs.at("dim")}}));
}

void dynamic_update(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  const int64_t dim = op.attr<int64_t>("dim");
  const ir::Dim size = r.type(r.x(1)).shape[static_cast<size_t>(dim)];
  if (r.wants(0)) r.give(0, r.b.emit(OpCode::kDynamicUpdate, {r.ct, r.like(0, r.x(1)), r.x(2)}, {{"dim", dim}}));
  if (r.wants(1)) r.give(1, r.b.emit(OpCode::kDynamicSlice, {r.ct, r.x(2)}, {{"dim", dim}, {"size", as_attr(size)}}));
}

void reduce_sum(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  Type x = r.type(r.x());
  r.give(0, r.b.broadcast(r.ct, x.shape, kept_dims(x.rank(), op.attr<Dims>("dims"))));
}

void reduce_max(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  Type x = r.type(r.x());
  Dims dims = op.attr<Dims>("dims");
  Dims kept = kept_dims(x.rank(), dims);
  ValueId ties = r.b.cast(r.compare(OpCode::kEq, r.x(), r.b.broadcast(r.y, x.shape, kept)), x.dtype);
  ValueId share = r.b.div(r.ct, r.b.reduce_sum(ties, dims));
  r.give(0, r.b.mul(r.b.broadcast(share, x.shape, kept), ties));
}

void matmul(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  bool transposed = op.attr_or("transpose_b", false);
  if (r.wants(0)) r.give(0, r.b.matmul(r.ct, r.x(1), !transposed));
  if (r.wants(1)) r.give(1, transposed ? r.b.outer(r.ct, r.x(0)) : r.b.outer(r.x(0), r.ct));
}

void outer(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  if (r.wants(0)) r.give(0, r.b.matmul(r.x(1), r.ct, true));
  if (r.wants(1)) r.give(1, r.b.matmul(r.x(0), r.ct));
}

void batch_matmul(Adjoints& adjoints, Op& op) {
  Rule1 r(adjoints, op);
  bool ta = op.attr_or("transpose_a", false);
  bool tb = op.attr_or("transpose_b", false);
  auto product = [&](ValueId a, bool transpose_a, ValueId b, bool transpose_b) {
    Attrs attrs;
    if (transpose_a) attrs.emplace("transpose_a", true);
    if (transpose_b) attrs.emplace("transpose_b", true);
    return r.b.emit(OpCode::kBatchMatmul, {a, b}, std::move(attrs));
  };
  ValueId a = r.x(0), b = r.x(1);
  if (r.wants(0)) r.give(0, ta ? product(b, tb, r.ct, true) : product(r.ct, false, b, !tb));
  if (r.wants(1)) r.give(1, tb ? product(r.ct, true, a, ta) : product(a, !ta, r.ct, false));
}

}  // namespace weft::passes::vjp_rules
