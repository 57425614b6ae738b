#include "importer/aten_shapes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "importer/aten_derivative.h"
#include "importer/aten_index.h"

namespace weft::importer {

using ir::OpCode;
using ir::ValueId;

namespace {

const ir::Op* transpose_defining(const AtenCall& call, ValueId value) {
  for (const ir::Op& op : call.builder.block().ops)
    if (op.code == OpCode::kTranspose && op.results[0] == value) return &op;
  return nullptr;
}

std::vector<int64_t> identity_permutation(int64_t rank) {
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

}  // namespace

ValueId permuted(const AtenCall& call, ValueId x, std::vector<int64_t> perm) {
  if (const ir::Op* inner = transpose_defining(call, x)) {
    x = inner->operands[0];
    for (int64_t& dim : perm) dim = inner->attr<std::vector<int64_t>>("perm")[static_cast<size_t>(dim)];
  }
  if (perm == identity_permutation(call.type(x).rank())) return x;
  return call.builder.transpose(x, std::move(perm));
}

namespace {

/// If `value` is a transpose (of the last two dims), its operand; else kNoValue.
ValueId untransposed(const AtenCall& call, ValueId value) {
  const ir::Op* op = transpose_defining(call, value);
  if (!op || call.type(value).rank() < 2) return ir::kNoValue;
  std::vector<int64_t> swap = identity_permutation(call.type(value).rank());
  std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
  return op->attr<std::vector<int64_t>>("perm") == swap ? op->operands[0] : ir::kNoValue;
}

/// The dims that an op reduces over: argument 1 if that is a dim or a list with a dim in it, else all dims.
std::vector<int64_t> reduced_dims(const AtenCall& call, int64_t rank) {
  std::vector<int64_t> dims;
  if (call.arguments.size() > 1) {
    if (const auto* list = std::get_if<std::vector<int64_t>>(&call.arguments[1])) dims = *list;
    if (const auto* one = std::get_if<int64_t>(&call.arguments[1])) dims = {*one};
  }
  if (rank == 0) return {};
  for (int64_t& dim : dims) {
    check(dim >= -rank && dim < rank, "{}: dim {} is outside {} dims", call.op, dim, rank);
    if (dim < 0) dim += rank;
  }
  if (dims.empty()) dims = identity_permutation(rank);
  std::sort(dims.begin(), dims.end());
  return dims;
}

int64_t constant_size(const AtenCall& call, ValueId x, int64_t dim) {
  const ir::Dim& size = call.type(x).shape[static_cast<size_t>(dim)];
  check(size.is_constant(), "{}: dim {} is symbolic", call.op, dim);
  return size.constant();
}

ValueId reduce(const AtenCall& call, OpCode code, ValueId x, std::vector<int64_t> dims) {
  ValueId value = dims.empty() ? x : call.builder.emit(code, {x}, {{"dims", std::move(dims)}});
  return call.reshape(value, call.result.shape);
}

ValueId product(const AtenCall& call, ValueId a, ValueId b) {
  check(call.type(a).dtype == call.type(b).dtype, "{}: operands of two dtypes", call.op);
  if (ValueId rows = untransposed(call, a); rows != ir::kNoValue) return call.builder.outer(rows, b);
  if (ValueId columns = untransposed(call, b); columns != ir::kNoValue)
    return call.builder.matmul(a, columns, /*transpose_b=*/true);
  return call.builder.matmul(a, b);
}

}  // namespace

ValueId view(const AtenCall& call) {
  check(call.type(call.tensor(0)).dtype == call.result.dtype, "{}: changes the dtype", call.op);
  return call.reshape(call.tensor(0), call.result.shape);
}

ValueId expand(const AtenCall& call) { return call.expand(call.tensor(0), call.result.shape); }

ValueId t(const AtenCall& call) {
  ValueId x = call.tensor(0);
  return call.type(x).rank() < 2 ? x : permuted(call, x, {1, 0});
}

ValueId transpose(const AtenCall& call) {
  ValueId x = call.tensor(0);
  int64_t rank = call.type(x).rank();
  if (rank == 0) return x;
  std::vector<int64_t> perm = identity_permutation(rank);
  std::swap(perm[static_cast<size_t>(call.dim(1, rank))], perm[static_cast<size_t>(call.dim(2, rank))]);
  return permuted(call, x, std::move(perm));
}

ValueId permute(const AtenCall& call) {
  std::vector<int64_t> perm = call.integers(1);
  for (int64_t& dim : perm)
    if (dim < 0) dim += static_cast<int64_t>(perm.size());
  return permuted(call, call.tensor(0), std::move(perm));
}

namespace {

/// Elements 0, step, 2 step, ... along a dim. The dim is padded to a multiple of `step` and split into groups of
/// `step`, of which the first elements are taken.
ValueId every(const AtenCall& call, ValueId x, int64_t dim, int64_t step) {
  const ir::Dim size = call.type(x).shape[static_cast<size_t>(dim)];
  const ir::Dim count = floor_divide(size + ir::Dim(step - 1), step), more = count * ir::Dim(step) - size;
  if (more != ir::Dim(0))
    x = call.builder.emit(OpCode::kPad, {x}, {{"dim", dim}, {"low", int64_t{0}}, {"high", ir::as_attr(more)}});
  ir::Shape shape = call.type(x).shape;
  shape[static_cast<size_t>(dim)] = count;
  shape.insert(shape.begin() + dim + 1, ir::Dim(step));
  return call.reshape(call.builder.slice(call.builder.reshape(x, shape), dim + 1, 0, 1), call.result.shape);
}

/// Whether a size isn't negative, whatever its symbols are.
bool is_never_negative(const ir::Dim& size) {
  return size.number() >= 0 &&
         std::ranges::all_of(size.terms(), [](const ir::Dim::Term& term) { return term.factor > 0; });
}

/// The slice of a dim whose size or bounds are no numbers. PyTorch clips the bounds, which their expressions don't
/// show, so the result's size tells what was taken. If the start was clipped, a size is negative, which is an error at
/// the call.
ValueId slice_of_symbolic(const AtenCall& call, ValueId x, int64_t dim, int64_t step) {
  const ir::Dim size = call.type(x).shape[static_cast<size_t>(dim)];
  const ir::Dim taken = call.result.shape[static_cast<size_t>(dim)];
  const ir::Dim start = call.is_none(2) || taken == ir::Dim(0) ? ir::Dim(0) : call.place(2, size);
  // Of a size less a number, counted from the end, other programs for other sizes know whether it is clipped.
  check(!call.is_negative_size(2) || call.size_argument(2).number() == 0 || is_never_negative(start),
        "{}: the start {} may lie in front of the dim", call.op, to_string(start));
  if (step == 1) return call.builder.slice(x, dim, start, start + taken);
  // The limit is at most the size, so that the groups of `step` end within the slice.
  const ir::Dim limit = call.is_none(3) ? size : call.place(3, size);
  const bool clipped = limit.is_constant() && limit.constant() > std::numeric_limits<int32_t>::max();
  return every(call, call.builder.slice(x, dim, start, clipped ? size : limit), dim, step);
}

}  // namespace

ValueId slice(const AtenCall& call) {
  ValueId x = call.tensor(0);
  const ir::Shape& shape = call.type(x).shape;
  int64_t dim = call.dim(1, call.type(x).rank());
  int64_t step = call.integer(4);
  if (shape == call.result.shape && step == 1) return x;
  const ir::Dim size = shape[static_cast<size_t>(dim)];
  if (!size.is_constant() || call.is_size(2) || call.is_size(3)) return slice_of_symbolic(call, x, dim, step);
  const int64_t n = size.constant();
  auto clip = [n](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n); };
  int64_t start = call.is_none(2) ? 0 : clip(call.integer(2));
  int64_t limit = std::max(start, call.is_none(3) ? n : clip(call.integer(3)));
  ValueId part = call.builder.slice(x, dim, start, limit);
  return step == 1 ? part : every(call, part, dim, step);
}

ValueId select(const AtenCall& call) {
  ValueId x = call.tensor(0);
  int64_t dim = call.dim(1, call.type(x).rank());
  if (call.is_size(2)) {
    const ir::Dim at = call.place(2, call.type(x).shape[static_cast<size_t>(dim)]);
    return call.reshape(call.builder.slice(x, dim, at, at + ir::Dim(1)), call.result.shape);
  }
  if (!call.type(x).shape[static_cast<size_t>(dim)].is_constant())
    return select_symbolic(call, x, dim, call.integer(2));
  int64_t size = constant_size(call, x, dim);
  int64_t index = call.integer(2) < 0 ? call.integer(2) + size : call.integer(2);
  return call.reshape(call.builder.slice(x, dim, index, index + 1), call.result.shape);
}

ValueId cat(const AtenCall& call) {
  int64_t dim = call.dim(1, call.result.rank());
  std::vector<ValueId> parts;
  for (Value part : call.tensors(0)) {
    check(call.type(part.id).rank() == call.result.rank(), "{}: an operand of another rank", call.op);
    parts.push_back(call.cast(part.id, call.result.dtype));
  }
  return call.builder.concat(std::move(parts), dim);
}

ValueId stack(const AtenCall& call) {
  int64_t dim = call.dim(1, call.result.rank());
  ir::Shape shape = call.result.shape;
  shape[static_cast<size_t>(dim)] = ir::Dim(1);
  std::vector<ValueId> parts;
  for (Value part : call.tensors(0)) parts.push_back(call.builder.reshape(part.id, shape));
  return call.builder.concat(std::move(parts), dim);
}

ValueId flip(const AtenCall& call) {
  ValueId x = call.tensor(0);
  int64_t rank = call.type(x).rank();
  if (rank == 0) return x;
  for (int64_t dim : call.integers(1))
    x = call.builder.emit(OpCode::kReverse, {x}, {{"dim", dim < 0 ? dim + rank : dim}});
  return x;
}

ValueId repeat(const AtenCall& call) {
  const std::vector<ir::Dim> times = call.size_arguments(1);
  ir::Shape shape = call.type(call.tensor(0)).shape;
  size_t lead = times.size() - shape.size();
  ir::Shape repeated;
  std::vector<int64_t> dims;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] != ir::Dim(1)) repeated.push_back(times[i]);
    if (i < lead) continue;
    dims.push_back(static_cast<int64_t>(repeated.size()));
    repeated.push_back(shape[i - lead]);
  }
  return call.reshape(call.builder.broadcast(call.tensor(0), repeated, std::move(dims)), call.result.shape);
}

namespace {

/// The index to which a shift moves the first element of a dim. With symbols the remainder isn't known, so the shift
/// itself is taken. It is an error at the call if it isn't within the dim.
ir::Dim place_of_first(const ir::Dim& size, const ir::Dim& shift) {
  if (size.is_constant() && shift.is_constant()) {
    const int64_t n = std::max<int64_t>(size.constant(), 1);
    return (shift.constant() % n + n) % n;
  }
  return shift.is_constant() && shift.constant() < 0 ? size + shift : shift;
}

ValueId rolled(const AtenCall& call, ValueId x, int64_t dim, const ir::Dim& shift) {
  const ir::Dim size = call.type(x).shape[static_cast<size_t>(dim)];
  const ir::Dim place = place_of_first(size, shift);
  if (place == ir::Dim(0) || place == size) return x;
  return call.builder.concat(
      {call.builder.slice(x, dim, size - place, size), call.builder.slice(x, dim, 0, size - place)}, dim);
}

}  // namespace

/// (x, shifts, dims). Without dims it shifts all elements as one row.
ValueId roll(const AtenCall& call) {
  ValueId x = call.tensor(0);
  const std::vector<ir::Dim> shifts = call.size_arguments(1);
  const std::vector<int64_t>& dims = call.integers(2);
  if (dims.empty()) {
    ValueId row = call.reshape(x, {element_count(call.result.shape)});
    return call.reshape(rolled(call, row, 0, shifts.at(0)), call.result.shape);
  }
  for (size_t i = 0; i < dims.size(); ++i)
    x = rolled(call, x, dims[i] < 0 ? dims[i] + call.result.rank() : dims[i], shifts.at(i));
  return x;
}

namespace {

/// Pads a dim by `low` and `high` elements; negative numbers remove elements.
ValueId padded(const AtenCall& call, ValueId x, int64_t dim, ir::Dim low, ir::Dim high, double value) {
  const ir::Dim none(0);
  auto removed = [&](const ir::Dim& amount) { return amount.is_constant() && amount < none ? none - amount : none; };
  if (removed(low) != none || removed(high) != none) {
    const ir::Dim size = call.type(x).shape[static_cast<size_t>(dim)];
    x = call.builder.slice(x, dim, removed(low), size - removed(high));
  }
  low = low + removed(low);
  high = high + removed(high);
  if (low == none && high == none) return x;
  if (value == 0)
    return call.builder.emit(OpCode::kPad, {x}, {{"dim", dim}, {"low", ir::as_attr(low)}, {"high", ir::as_attr(high)}});
  std::vector<ValueId> parts;
  auto fill = [&](const ir::Dim& count) {
    ir::Type type = call.type(x);
    type.shape[static_cast<size_t>(dim)] = count;
    if (count != none) parts.push_back(call.builder.constant(value, std::move(type)));
  };
  fill(low);
  parts.push_back(x);
  fill(high);
  return call.builder.concat(std::move(parts), dim);
}

}  // namespace

/// (x, [low of the last dim, high, low of the last but one, ...], value)
ValueId constant_pad(const AtenCall& call) {
  const std::vector<ir::Dim> amounts = call.size_arguments(1);
  ValueId x = call.tensor(0);
  for (size_t i = 0; i + 1 < amounts.size(); i += 2)
    x = padded(call, x, call.result.rank() - 1 - static_cast<int64_t>(i / 2), amounts[i], amounts[i + 1],
               call.number(2));
  return x;
}

ValueId sum(const AtenCall& call) {
  ValueId x = call.cast(call.tensor(0), call.result.dtype);
  return reduce(call, OpCode::kReduceSum, x, reduced_dims(call, call.type(x).rank()));
}

ValueId mean(const AtenCall& call) {
  ValueId x = call.cast(call.tensor(0), call.result.dtype);
  std::vector<int64_t> dims = reduced_dims(call, call.type(x).rank());
  ir::Dim count(1);
  for (int64_t dim : dims) count = count * call.type(x).shape[static_cast<size_t>(dim)];
  ValueId total = reduce(call, OpCode::kReduceSum, x, std::move(dims));
  return call.builder.div(total, call.builder.broadcast(call.size(count, call.result.dtype), call.result.shape, {}));
}

namespace {

/// Reverses the order of numbers, exactly: -x for floats, ~x for integers, since -x of the least integer overflows.
ValueId reversed(const AtenCall& call, ValueId x) {
  return call.unary(is_floating(call.type(x).dtype) ? OpCode::kNeg : OpCode::kNot, x);
}

/// bool as i32, since the IR has no maximum of bools.
ValueId ordered(const AtenCall& call, ValueId x) {
  return call.type(x).dtype == DType::kBool ? call.cast(x, DType::kI32) : x;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// amax over a single element. Its derivative at NaN is amax's, 0/0.
ValueId alone(const AtenCall& call, ValueId x) {
  return with_slope(call, x, x, [](ir::Builder& b, ValueId at) {
    const ValueId nan = like(b, std::numeric_limits<double>::quiet_NaN(), at);
    return b.select(b.binary(OpCode::kEq, at, at), like(b, 1, at), nan);
  });
}

/// The maximum of all elements. Where it is NaN, the NaN elements share its gradient, as in PyTorch: for the derivative
/// they count as infinite.
ValueId largest_of_all(const AtenCall& call, ValueId x, const std::vector<int64_t>& dims) {
  const ValueId value = reduce(call, OpCode::kReduceMax, x, dims);
  const ValueId is_nan = call.binary(OpCode::kNe, x, x);
  const ValueId shown = call.builder.select(is_nan, call.constant(kInfinity, x), x);
  return as_if_it_were(call, reduce(call, OpCode::kReduceMax, as_if_it_were(call, x, shown), dims), value);
}

ValueId largest(const AtenCall& call, bool smallest) {
  ValueId x = ordered(call, call.tensor(0));
  if (smallest) x = reversed(call, x);
  std::vector<int64_t> dims = reduced_dims(call, call.type(x).rank());
  const ir::Shape& shape = call.type(x).shape;
  const bool one_each =
      std::ranges::all_of(dims, [&](int64_t dim) { return shape[static_cast<size_t>(dim)] == ir::Dim(1); });
  const bool of_all = call.op == "aten.max.default" || call.op == "aten.min.default";
  if (!is_floating(call.type(x).dtype) || (one_each && of_all)) {
    x = reduce(call, OpCode::kReduceMax, x, std::move(dims));
  } else if (one_each) {
    x = alone(call, call.reshape(x, call.result.shape));
  } else {
    x = of_all ? largest_of_all(call, x, dims) : reduce(call, OpCode::kReduceMax, x, std::move(dims));
  }
  return call.cast(smallest ? reversed(call, x) : x, call.result.dtype);
}

/// Whether any element is true (or, `negated`, any is not).
ValueId has_any(const AtenCall& call, bool negated) {
  ValueId x = call.cast(call.tensor(0), DType::kBool);
  if (negated) x = call.unary(OpCode::kNot, x);
  ValueId count = reduce(call, OpCode::kReduceMax, call.cast(x, DType::kI32), reduced_dims(call, call.type(x).rank()));
  ValueId some = call.binary(OpCode::kGt, count, call.constant(0, count));  // with no elements, count is less than 0
  return call.cast(negated ? call.unary(OpCode::kNot, some) : some, call.result.dtype);
}

/// argmax: the least index of an element that equals the maximum, computed as a maximum of negated indices.
ValueId index_of_largest(const AtenCall& call, bool smallest) {
  ValueId x = ordered(call, call.tensor(0));
  if (call.is_none(1) || call.type(x).rank() == 0) x = call.reshape(x, {element_count(call.type(x).shape)});
  if (smallest) x = reversed(call, x);
  const ir::Shape shape = call.type(x).shape;
  int64_t dim = call.is_none(1) ? 0 : call.dim(1, static_cast<int64_t>(shape.size()));
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i)
    if (i != dim) kept.push_back(i);
  const ir::Attrs dims{{"dims", std::vector<int64_t>{dim}}};
  ValueId most = call.builder.broadcast(call.builder.emit(OpCode::kReduceMax, {x}, dims), shape, kept);
  ValueId hit = call.binary(OpCode::kEq, x, most);
  if (is_floating(call.type(x).dtype)) hit = call.binary(OpCode::kOr, hit, call.binary(OpCode::kNe, x, x));
  ValueId index = call.builder.neg(call.iota(shape, static_cast<size_t>(dim), DType::kI64));
  constexpr double kNone = -4611686018427387904.0;
  ValueId first =
      call.builder.emit(OpCode::kReduceMax, {call.builder.select(hit, index, call.constant(kNone, index))}, dims);
  return call.reshape(call.builder.neg(first), call.result.shape);
}

}  // namespace

ValueId amax(const AtenCall& call) { return largest(call, /*smallest=*/false); }
ValueId amin(const AtenCall& call) { return largest(call, /*smallest=*/true); }
ValueId any(const AtenCall& call) { return has_any(call, /*negated=*/false); }
ValueId all(const AtenCall& call) { return has_any(call, /*negated=*/true); }
ValueId argmax(const AtenCall& call) { return index_of_largest(call, /*smallest=*/false); }
ValueId argmin(const AtenCall& call) { return index_of_largest(call, /*smallest=*/true); }

ValueId mm(const AtenCall& call) { return product(call, call.tensor(0), call.tensor(1)); }

namespace {

/// beta * bias + alpha * product; bias, beta and alpha are arguments 0, 3 and 4. With beta 0 the bias is ignored, even
/// if it is NaN.
ValueId added(const AtenCall& call, ValueId product) {
  double beta = call.number(3), alpha = call.number(4);
  if (alpha != 1) product = call.builder.mul(product, call.constant(alpha));
  if (beta == 0) return product;
  ValueId bias = call.expand(call.tensor(0), call.result.shape);
  if (beta != 1) bias = call.builder.mul(bias, call.constant(beta));
  return call.builder.add(product, bias);
}

ValueId batch_product(const AtenCall& call, ValueId a, ValueId b) {
  ir::Attrs attrs;
  if (ValueId source = untransposed(call, a); source != ir::kNoValue) {
    a = source;
    attrs.emplace("transpose_a", true);
  }
  if (ValueId source = untransposed(call, b); source != ir::kNoValue) {
    b = source;
    attrs.emplace("transpose_b", true);
  }
  return call.builder.emit(OpCode::kBatchMatmul, {a, b}, std::move(attrs));
}

}  // namespace

ValueId addmm(const AtenCall& call) { return added(call, product(call, call.tensor(1), call.tensor(2))); }

ValueId mv(const AtenCall& call) {
  ValueId matrix = call.tensor(0);
  ValueId columns = untransposed(call, matrix);
  return call.builder.matmul(call.tensor(1), columns != ir::kNoValue ? columns : matrix, columns == ir::kNoValue);
}

ValueId dot(const AtenCall& call) {
  return call.builder.reduce_sum(call.builder.mul(call.tensor(0), call.tensor(1)), {0});
}

ValueId bmm(const AtenCall& call) { return batch_product(call, call.tensor(0), call.tensor(1)); }

ValueId baddbmm(const AtenCall& call) { return added(call, batch_product(call, call.tensor(1), call.tensor(2))); }

/// (weight, indices, padding_idx, scale_grad_by_freq). The row padding_idx of the weight gets no gradient.
ValueId embedding(const AtenCall& call) {
  check(!call.flag(3), "{}: scales gradients by frequency", call.op);
  ValueId index = call.tensor(1);
  ValueId rows = call.builder.emit(OpCode::kGather, {call.tensor(0), index});
  if (call.integer(2) < 0) return rows;
  ValueId padding = call.binary(OpCode::kEq, index, call.constant(static_cast<double>(call.integer(2)), index));
  ir::Shape shape = call.type(index).shape;
  shape.emplace_back(1);
  padding = call.expand(call.builder.reshape(padding, shape), call.result.shape);
  return call.builder.select(padding, call.unary(OpCode::kStopGradient, rows), rows);
}

/// (grad, indices, num_weights, padding_idx, scale_grad_by_freq)
ValueId embedding_backward(const AtenCall& call) {
  check(call.integer(3) < 0 && !call.flag(4), "{}: has a padding index or scales by frequency", call.op);
  return call.builder.emit(OpCode::kScatterAdd, {call.tensor(1), call.tensor(0)}, {}, &call.result);
}

ValueId normalised(const AtenCall& call, int64_t dim, bool log) {
  ValueId x = call.cast(call.tensor(0), call.result.dtype);
  const ir::Shape shape = call.result.shape;
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < call.result.rank(); ++i)
    if (i != dim) kept.push_back(i);
  auto over = [&](OpCode code, ValueId value) {
    return call.builder.broadcast(call.builder.emit(code, {value}, {{"dims", std::vector<int64_t>{dim}}}), shape, kept);
  };
  ValueId shifted = call.builder.sub(x, over(OpCode::kReduceMax, x));
  ValueId weights = call.builder.unary(OpCode::kExp, shifted);
  ValueId total = over(OpCode::kReduceSum, weights);
  if (log) return call.builder.sub(shifted, call.builder.unary(OpCode::kLog, total));
  return call.builder.div(weights, total);
}

}  // namespace weft::importer
