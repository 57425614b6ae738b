#include "importer/aten_ops.h"

#include <algorithm>
#include <map>
#include <numbers>

#include "importer/aten_elementwise.h"
#include "importer/aten_index.h"
#include "importer/aten_shapes.h"
#include "importer/aten_special.h"

namespace weft::importer {

using ir::OpCode;
using ir::ValueId;

namespace {

template <typename T>
const T& as(const AtenCall& call, size_t i, std::string_view what) {
  check(i < call.arguments.size(), "{}: has no argument {}", call.op, i);
  const T* value = std::get_if<T>(&call.arguments[i]);
  check(value != nullptr, "{}: argument {} is not {} that is known when the program is made", call.op, i, what);
  return *value;
}

}  // namespace

ValueId AtenCall::tensor(size_t i) const { return as<Value>(*this, i, "a tensor").id; }
int64_t AtenCall::integer(size_t i) const { return as<int64_t>(*this, i, "an integer"); }
bool AtenCall::flag(size_t i) const { return as<bool>(*this, i, "true or false"); }
const std::vector<int64_t>& AtenCall::integers(size_t i) const {
  return as<std::vector<int64_t>>(*this, i, "a list of integers");
}
const std::vector<Value>& AtenCall::tensors(size_t i) const {
  return as<std::vector<Value>>(*this, i, "a list of tensors");
}
ir::Dim AtenCall::size_argument(size_t i) const {
  if (i < arguments.size())
    if (const auto* dim = std::get_if<ir::Dim>(&arguments[i])) return *dim;
  if (is_negative_size(i)) return ir::Dim(-1) * std::get<Negative>(arguments[i]).size;
  return integer(i);
}
ir::Dim AtenCall::place(size_t i, const ir::Dim& size) const {
  const ir::Dim at = size_argument(i);
  return is_negative_size(i) || (at.is_constant() && at.constant() < 0) ? size + at : at;
}
std::vector<ir::Dim> AtenCall::size_arguments(size_t i) const {
  if (i < arguments.size())
    if (const auto* dims = std::get_if<std::vector<ir::Dim>>(&arguments[i])) return *dims;
  const std::vector<int64_t>& numbers = integers(i);
  return {numbers.begin(), numbers.end()};
}
bool AtenCall::is_tensor(size_t i) const { return std::holds_alternative<Value>(arguments.at(i)); }
bool AtenCall::is_size(size_t i) const {
  return i < arguments.size() && (std::holds_alternative<ir::Dim>(arguments[i]) || is_negative_size(i));
}
bool AtenCall::is_negative_size(size_t i) const {
  return i < arguments.size() && std::holds_alternative<Negative>(arguments[i]);
}
bool AtenCall::is_unknown(size_t i) const { return std::holds_alternative<Unknown>(arguments.at(i)) || is_size(i); }
std::string_view AtenCall::word(size_t i) const { return as<std::string>(*this, i, "a word"); }

std::vector<std::optional<Value>> AtenCall::optional_tensors(size_t i) const {
  if (const auto* all = std::get_if<std::vector<Value>>(&arguments.at(i))) return {all->begin(), all->end()};
  return as<std::vector<std::optional<Value>>>(*this, i, "a list of tensors");
}

bool AtenCall::is_none(size_t i) const { return std::holds_alternative<std::monostate>(arguments.at(i)); }

namespace {

/// Whether the integer is a number of f64, as constants of the IR are.
bool is_exact(int64_t value) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  const auto rounded = static_cast<double>(value);
  return rounded < kEnd && static_cast<int64_t>(rounded) == value;
}

/// An integer of more bits than a constant holds, of two halves.
ValueId of_halves(ir::Builder& builder, int64_t value, const ir::Type& type) {
  const auto half = [&](int64_t bits) { return builder.constant(static_cast<double>(bits), type); };
  const ValueId high = builder.mul(half(value >> 32), half(int64_t{1} << 32));
  return builder.add(high, half(value & 0xffffffff));
}

}  // namespace

double AtenCall::number(size_t i) const {
  check(i < arguments.size(), "{}: has no argument {}", op, i);
  if (const bool* value = std::get_if<bool>(&arguments[i])) return *value ? 1.0 : 0.0;
  if (const auto* value = std::get_if<int64_t>(&arguments[i])) {
    check(is_exact(*value), "{}: a constant is a number of 53 bits, but argument {} is {}", op, i, *value);
    return static_cast<double>(*value);
  }
  return as<double>(*this, i, "a number");
}

int64_t AtenCall::dim(size_t i, int64_t rank) const {
  int64_t dim = integer(i);
  check(dim >= -rank && dim < rank, "{}: dim {} is outside {} dims", op, dim, rank);
  return dim < 0 ? dim + rank : dim;
}

ValueId AtenCall::cast(ValueId value, DType dtype) const {
  return type(value).dtype == dtype ? value : builder.cast(value, dtype);
}

ValueId AtenCall::reshape(ValueId value, const ir::Shape& shape) const {
  return type(value).shape == shape ? value : builder.reshape(value, shape);
}

ValueId AtenCall::expand(ValueId value, const ir::Shape& shape) const {
  if (type(value).shape == shape) return value;
  ir::Shape from = type(value).shape;
  check(from.size() <= shape.size(), "{}: {} doesn't broadcast to {}", op, to_string(from), to_string(shape));
  size_t lead = shape.size() - from.size();
  ir::Shape kept;
  std::vector<int64_t> dims;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == ir::Dim(1) && shape[lead + i] != ir::Dim(1)) continue;
    kept.push_back(from[i]);
    dims.push_back(static_cast<int64_t>(lead + i));
  }
  return builder.broadcast(reshape(value, kept), shape, std::move(dims));
}

ValueId AtenCall::size(const ir::Dim& dim, DType dtype) const {
  ir::Type number{dtype, {}};
  if (dim.is_constant()) return builder.constant(static_cast<double>(dim.constant()), number);
  return builder.emit(OpCode::kSize, {}, {{"of", dim}}, &number);
}

ValueId AtenCall::iota(const ir::Shape& shape, size_t dim, DType dtype) const {
  ir::Type row{dtype, {shape[dim]}};
  ValueId index = builder.emit(OpCode::kIota, {}, {{"dim", int64_t{0}}}, &row);
  return shape.size() == 1 ? index : builder.broadcast(index, shape, {static_cast<int64_t>(dim)});
}

ValueId AtenCall::operand(size_t i, DType dtype) const {
  if (is_size(i)) return expand(size(size_argument(i), dtype), result.shape);
  if (!is_tensor(i)) {
    const ir::Type type{dtype, result.shape};
    const auto* value = std::get_if<int64_t>(&arguments.at(i));
    if (value != nullptr && dtype == DType::kI64 && !is_exact(*value)) return of_halves(builder, *value, type);
    return builder.constant(number(i), type);
  }
  return expand(cast(tensor(i), dtype), result.shape);
}

namespace {

ValueId identity(const AtenCall& call) { return call.cast(call.tensor(0), call.result.dtype); }

template <OpCode Code>
ValueId unary(const AtenCall& call) {
  return call.builder.unary(Code, call.operand(0));
}

/// For bools a sum or maximum is `or`, a product or minimum is `and`.
OpCode of_dtype(OpCode code, DType dtype) {
  if (dtype != DType::kBool) return code;
  if (code == OpCode::kAdd || code == OpCode::kMaximum) return OpCode::kOr;
  return code == OpCode::kMul || code == OpCode::kMinimum ? OpCode::kAnd : code;
}

template <OpCode Code>
ValueId binary(const AtenCall& call) {
  return call.builder.binary(of_dtype(Code, call.result.dtype), call.operand(0), call.operand(1));
}

/// Argument 2 is alpha.
ValueId times_alpha(const AtenCall& call, ValueId x) {
  return !call.is_size(2) && call.number(2) == 1.0 ? x : call.builder.mul(x, call.operand(2));
}

/// a + alpha * b, or a - alpha * b.
template <OpCode Code>
ValueId scaled(const AtenCall& call) {
  return call.builder.binary(of_dtype(Code, call.result.dtype), call.operand(0), times_alpha(call, call.operand(1)));
}

ValueId reversed_sub(const AtenCall& call) {
  return call.builder.sub(call.operand(1), times_alpha(call, call.operand(0)));
}

ValueId reciprocal(const AtenCall& call) { return call.builder.div(call.constant(1.0), call.operand(0)); }

ValueId silu(const AtenCall& call) {
  ValueId x = call.operand(0);
  return call.builder.mul(x, call.builder.sigmoid(x));
}

ValueId where(const AtenCall& call) {
  return call.builder.select(call.operand(0, DType::kBool), call.operand(1), call.operand(2));
}

/// (x, mask, value): value where the mask holds.
ValueId masked_fill(const AtenCall& call) {
  return call.builder.select(call.operand(1, DType::kBool), call.operand(2), call.operand(0));
}

ValueId tanh_backward(const AtenCall& call) {
  ValueId y = call.operand(1);
  return call.builder.mul(call.operand(0), call.builder.sub(call.constant(1.0), call.builder.mul(y, y)));
}

ValueId sigmoid_backward(const AtenCall& call) {
  ValueId y = call.operand(1);
  ValueId rest = call.builder.sub(call.constant(1.0), y);
  return call.builder.mul(call.operand(0), call.builder.mul(rest, y));
}

/// (grad, x, threshold): 0 where x <= threshold; a NaN in x lets the gradient through.
ValueId threshold_backward(const AtenCall& call) {
  ValueId off = call.builder.binary(OpCode::kLe, call.operand(1), call.constant(call.number(2)));
  return call.builder.select(off, call.constant(0.0), call.operand(0));
}

/// (grad, mask, scale)
ValueId dropout_backward(const AtenCall& call) {
  ValueId scaled = call.builder.mul(call.operand(1), call.constant(call.number(2)));
  return call.builder.mul(call.operand(0), scaled);
}

template <int Value>
ValueId filled(const AtenCall& call) {
  return call.constant(Value);
}

template <size_t Argument>
ValueId operand(const AtenCall& call) {
  return call.operand(Argument);
}

template <size_t Argument>
ValueId full(const AtenCall& call) {
  return call.constant(call.number(Argument));
}

ValueId softmax(const AtenCall& call) { return normalised(call, call.dim(1, call.result.rank()), /*log=*/false); }
ValueId log_softmax(const AtenCall& call) { return normalised(call, call.dim(1, call.result.rank()), /*log=*/true); }

const std::map<std::string_view, Handler>& table() {
  static const std::map<std::string_view, Handler> handlers = {
      // Ops whose value is the operand's, perhaps in another dtype.
      {"aten._to_copy.default", identity},
      {"aten.alias.default", identity},
      {"aten.clone.default", identity},
      {"aten.detach.default", identity},
      {"aten.contiguous.default", identity},
      {"aten.lift_fresh.default", identity},
      {"aten.lift_fresh_copy.default", identity},
      {"aten.lift_fresh.default", identity},
      {"weft.stop_gradient", unary<OpCode::kStopGradient>},
      {"aten.neg.default", unary<OpCode::kNeg>},
      {"aten.abs.default", unary<OpCode::kAbs>},
      {"aten.sign.default", unary<OpCode::kSign>},
      {"aten.exp.default", unary<OpCode::kExp>},
      {"aten.expm1.default", unary<OpCode::kExpm1>},
      {"aten.log2.default", unary<OpCode::kLog2>},
      {"aten.log10.default", unary<OpCode::kLog10>},
      {"aten.log.default", unary<OpCode::kLog>},
      {"aten.log1p.default", unary<OpCode::kLog1p>},
      {"aten.sqrt.default", unary<OpCode::kSqrt>},
      {"aten.rsqrt.default", unary<OpCode::kRsqrt>},
      {"aten.tanh.default", unary<OpCode::kTanh>},
      {"aten.sigmoid.default", unary<OpCode::kSigmoid>},
      {"aten.relu.default", unary<OpCode::kRelu>},
      {"aten.sin.default", unary<OpCode::kSin>},
      {"aten.cos.default", unary<OpCode::kCos>},
      {"aten.erf.default", unary<OpCode::kErf>},
      {"aten.erfc.default", unary<OpCode::kErfc>},
      {"aten.floor.default", rounded<OpCode::kFloor>},
      {"aten.ceil.default", rounded<OpCode::kCeil>},
      {"aten.trunc.default", rounded<OpCode::kTrunc>},
      {"aten.round.default", rounded<OpCode::kRound>},
      {"aten.tan.default", tan},
      {"aten.asin.default", asin},
      {"aten.acos.default", acos},
      {"aten.atan.default", atan},
      {"aten.sinh.default", sinh},
      {"aten.cosh.default", cosh},
      {"aten.asinh.default", asinh},
      {"aten.acosh.default", acosh},
      {"aten.atanh.default", atanh},
      {"aten.atan2.default", binary<OpCode::kAtan2>},
      {"aten.hypot.default", binary<OpCode::kHypot>},
      {"aten.logaddexp.default", binary<OpCode::kLogaddexp>},
      {"aten.sinc.default", sinc},
      {"aten.xlogy.Tensor", xlogy},
      {"aten.xlogy.Scalar_Self", xlogy},
      {"aten.xlogy.Scalar_Other", xlogy},
      {"aten.special_xlog1py.default", xlog1py},
      {"aten.special_xlog1py.self_scalar", xlog1py},
      {"aten.special_xlog1py.other_scalar", xlog1py},
      {"aten.special_entr.default", entropy},
      {"aten.logit.default", logit},
      {"aten.binary_cross_entropy.default", binary_cross_entropy},
      {"aten.isnan.default", is_nan},
      {"aten.isinf.default", is_inf},
      {"aten.sgn.default", unary<OpCode::kSign>},
      {"aten.square.default", square},
      {"aten.bitwise_not.default", unary<OpCode::kNot>},
      {"aten.logical_not.default", unary<OpCode::kNot>},
      {"aten.reciprocal.default", reciprocal},
      {"aten.silu.default", silu},
      {"aten.fmax.default", fmax},
      {"aten.fmin.default", fmin},
      {"aten.clamp.default", clamp},
      {"aten.clamp.Tensor", clamp},
      {"aten.clamp_min.default", clamp_min},
      {"aten.clamp_min.Tensor", clamp_min},
      {"aten.clamp_max.default", clamp_max},
      {"aten.clamp_max.Tensor", clamp_max},
      {"aten.pow.Tensor_Scalar", power},
      {"aten.pow.Tensor_Tensor", power_of_tensors},
      {"aten.pow.Scalar", power_of_tensors},
      {"aten.exp2.default", exp2},
      {"aten.add.Tensor", scaled<OpCode::kAdd>},
      {"aten.add.Scalar", scaled<OpCode::kAdd>},
      {"aten.sub.Tensor", scaled<OpCode::kSub>},
      {"aten.sub.Scalar", scaled<OpCode::kSub>},
      {"aten.rsub.Scalar", reversed_sub},
      {"aten.rsub.Tensor", reversed_sub},
      {"aten.mul.Tensor", binary<OpCode::kMul>},
      {"aten.mul.Scalar", binary<OpCode::kMul>},
      {"aten.div.Tensor", binary<OpCode::kDiv>},
      {"aten.div.Scalar", binary<OpCode::kDiv>},
      {"aten.maximum.default", binary<OpCode::kMaximum>},
      {"aten.minimum.default", binary<OpCode::kMinimum>},
      {"aten.logical_and.default", binary<OpCode::kAnd>},
      {"aten.logical_or.default", binary<OpCode::kOr>},
      {"aten.logical_xor.default", exclusive_or},
      {"aten.bitwise_and.Tensor", binary<OpCode::kAnd>},
      {"aten.bitwise_and.Scalar", binary<OpCode::kAnd>},
      {"aten.bitwise_or.Tensor", binary<OpCode::kOr>},
      {"aten.bitwise_or.Scalar", binary<OpCode::kOr>},
      {"aten.bitwise_xor.Tensor", exclusive_or},
      {"aten.bitwise_xor.Scalar", exclusive_or},
      {"aten.fmod.Tensor", binary<OpCode::kRem>},
      {"aten.fmod.Scalar", binary<OpCode::kRem>},
      {"aten.remainder.Tensor", remainder},
      {"aten.remainder.Scalar", remainder},
      {"aten.remainder.Scalar_Tensor", remainder},
      {"aten.div.Tensor_mode", divide_rounded},
      {"aten.div.Scalar_mode", divide_rounded},
      {"aten.floor_divide.default", floor_divide},
      {"aten.floor_divide.Scalar", floor_divide},
      {"aten.eq.Tensor", compare<OpCode::kEq>},
      {"aten.eq.Scalar", compare<OpCode::kEq>},
      {"aten.ne.Tensor", compare<OpCode::kNe>},
      {"aten.ne.Scalar", compare<OpCode::kNe>},
      {"aten.lt.Tensor", compare<OpCode::kLt>},
      {"aten.lt.Scalar", compare<OpCode::kLt>},
      {"aten.le.Tensor", compare<OpCode::kLe>},
      {"aten.le.Scalar", compare<OpCode::kLe>},
      {"aten.gt.Tensor", compare<OpCode::kGt>},
      {"aten.gt.Scalar", compare<OpCode::kGt>},
      {"aten.ge.Tensor", compare<OpCode::kGe>},
      {"aten.ge.Scalar", compare<OpCode::kGe>},
      {"aten.where.self", where},
      {"aten.where.Scalar", where},
      {"aten.where.ScalarSelf", where},
      {"aten.where.ScalarOther", where},
      {"aten.masked_fill.Scalar", masked_fill},
      {"aten.masked_fill.Tensor", masked_fill},
      {"aten.tanh_backward.default", tanh_backward},
      {"aten.sigmoid_backward.default", sigmoid_backward},
      {"aten.threshold_backward.default", threshold_backward},
      {"aten.native_dropout_backward.default", dropout_backward},
      {"aten.zeros.default", filled<0>},
      {"aten.ones.default", filled<1>},
      {"aten.zeros_like.default", filled<0>},
      {"aten.zero.default", filled<0>},
      {"aten.ones_like.default", filled<1>},
      {"aten.new_zeros.default", filled<0>},
      {"aten.new_ones.default", filled<1>},
      {"aten.empty.memory_format", filled<0>},
      {"aten.empty_like.default", filled<0>},
      {"aten.new_empty.default", filled<0>},
      {"aten.full.default", full<1>},
      {"aten.full_like.default", full<1>},
      {"aten.new_full.default", full<2>},
      {"aten.fill.Scalar", full<1>},
      {"aten.fill.Tensor", operand<1>},
      {"aten.arange.default", arange},
      {"aten.arange.start", arange},
      {"aten.arange.start_step", arange},
      {"prims.iota.default", prims_iota},
      {"aten.eye.default", eye},
      {"aten.eye.m", eye},
      {"aten.tril.default", triangle<OpCode::kLe>},
      {"aten.triu.default", triangle<OpCode::kGe>},
      {"aten.scalar_tensor.default", full<0>},
      {"aten._softmax.default", softmax},
      {"aten._log_softmax.default", log_softmax},
      {"aten.repeat.default", repeat},
      {"aten.roll.default", roll},
      {"aten.constant_pad_nd.default", constant_pad},
      {"aten.index_select.default", index_select},
      {"aten.gather.default", gather},
      {"aten.index.Tensor", index},
      {"aten.index_put.default", index_put},
      {"aten.scatter.src", scatter},
      {"aten.scatter.value", scatter},
      {"aten.scatter_add.default", scatter_add},
      {"aten.index_add.default", index_add},
      {"aten.index_copy.default", index_copy},
      {"aten.index_fill.int_Scalar", index_fill},
      {"aten.index_fill.int_Tensor", index_fill},
      {"aten.select_scatter.default", select_scatter},
      {"aten.slice_scatter.default", slice_scatter},
      {"aten.copy.default", operand<1>},
      {"aten.view.default", view},
      {"aten._reshape_alias.default", view},
      {"aten.view_copy.default", view},
      {"aten.unsqueeze_copy.default", view},
      {"aten._unsafe_view.default", view},
      {"aten.reshape.default", view},
      {"aten.unsqueeze.default", view},
      {"aten.squeeze.default", view},
      {"aten.squeeze.dim", view},
      {"aten.squeeze.dims", view},
      {"aten.expand.default", expand},
      {"aten.t.default", t},
      {"aten.transpose.int", transpose},
      {"aten.permute.default", permute},
      {"aten.slice.Tensor", slice},
      {"aten.select.int", select},
      {"aten.cat.default", cat},
      {"aten.stack.default", stack},
      {"aten.flip.default", flip},
      {"aten.sum.default", sum},
      {"aten.sum.dim_IntList", sum},
      {"aten.mean.default", mean},
      {"aten.mean.dim", mean},
      {"aten.amax.default", amax},
      {"aten.amin.default", amin},
      {"aten.max.default", amax},
      {"aten.min.default", amin},
      {"aten.any.default", any},
      {"aten.any.dim", any},
      {"aten.any.dims", any},
      {"aten.all.default", all},
      {"aten.all.dim", all},
      {"aten.all.dims", all},
      {"aten.argmax.default", argmax},
      {"aten.argmin.default", argmin},
      {"aten.mm.default", mm},
      {"aten.addmm.default", addmm},
      {"aten.mv.default", mv},
      {"aten.dot.default", dot},
      {"aten.bmm.default", bmm},
      {"aten.baddbmm.default", baddbmm},
      {"aten.embedding.default", embedding},
      {"aten.embedding_dense_backward.default", embedding_backward},
  };
  return handlers;
}

[[maybe_unused]] const auto& made_at_load = table();

}  // namespace

bool knows_aten(std::string_view op) { return table().contains(op); }

ValueId import_aten(const AtenCall& call) {
  auto it = table().find(call.op);
  check(it != table().end(), "{}: the IR has no op for it", call.op);
  ValueId value = it->second(call);
  check(call.type(value) == call.result, "{}: the IR's result is {}, but PyTorch's is {}", call.op,
        to_string(call.type(value)), to_string(call.result));
  return value;
}

}  // namespace weft::importer
