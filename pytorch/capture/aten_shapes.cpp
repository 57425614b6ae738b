#include "capture/aten_shapes.h"

#include <algorithm>
#include <numeric>

namespace weft::capture {

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

/// x with its dims permuted; where x is a permuted value itself, that value permuted once or not at all.
ValueId permuted(const AtenCall& call, ValueId x, std::vector<int64_t> perm) {
  if (const ir::Op* inner = transpose_defining(call, x)) {
    x = inner->operands[0];
    for (int64_t& dim : perm) dim = inner->attr<std::vector<int64_t>>("perm")[static_cast<size_t>(dim)];
  }
  if (perm == identity_permutation(call.type(x).rank())) return x;
  return call.builder.transpose(x, std::move(perm));
}

/// What `value` is the transpose of (the last two dims swapped), or kNoValue when it is none.
ValueId untransposed(const AtenCall& call, ValueId value) {
  const ir::Op* op = transpose_defining(call, value);
  if (!op || call.type(value).rank() < 2) return ir::kNoValue;
  std::vector<int64_t> swap = identity_permutation(call.type(value).rank());
  std::swap(swap[swap.size() - 1], swap[swap.size() - 2]);
  return op->attr<std::vector<int64_t>>("perm") == swap ? op->operands[0] : ir::kNoValue;
}

/// The dims an op reduces over: argument 1, or all where it has none, or None or [] there.
std::vector<int64_t> reduced_dims(const AtenCall& call, int64_t rank) {
  std::vector<int64_t> dims;
  bool named = call.op.ends_with(".dim") || call.op.ends_with(".dim_IntList") || call.op == "aten.amax.default";
  if (named && !call.is_none(1)) dims = call.integers(1);
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

ValueId slice(const AtenCall& call) {
  ValueId x = call.tensor(0);
  const ir::Shape& shape = call.type(x).shape;
  int64_t dim = call.dim(1, call.type(x).rank());
  if (shape == call.result.shape && call.integer(4) == 1) return x;
  check(call.integer(4) == 1, "{}: has a step", call.op);
  int64_t size = constant_size(call, x, dim);
  auto clip = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  int64_t start = call.is_none(2) ? 0 : clip(call.integer(2));
  int64_t limit = call.is_none(3) ? size : clip(call.integer(3));
  return call.builder.slice(x, dim, start, std::max(start, limit));
}

ValueId select(const AtenCall& call) {
  ValueId x = call.tensor(0);
  int64_t dim = call.dim(1, call.type(x).rank());
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
  for (int64_t dim : call.integers(1))
    x = call.builder.emit(OpCode::kReverse, {x}, {{"dim", dim < 0 ? dim + rank : dim}});
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
  check(count.is_constant(), "{}: over a symbolic number of elements", call.op);
  ValueId total = reduce(call, OpCode::kReduceSum, x, std::move(dims));
  return call.builder.div(total, call.constant(static_cast<double>(count.constant())));
}

ValueId amax(const AtenCall& call) {
  ValueId x = call.tensor(0);
  return reduce(call, OpCode::kReduceMax, x, reduced_dims(call, call.type(x).rank()));
}

ValueId mm(const AtenCall& call) { return product(call, call.tensor(0), call.tensor(1)); }

/// beta * bias + alpha * (a b)
ValueId addmm(const AtenCall& call) {
  check(call.number(3) == 1.0 && call.number(4) == 1.0, "{}: beta or alpha is not 1", call.op);
  ValueId bias = call.expand(call.tensor(0), call.result.shape);
  return call.builder.add(product(call, call.tensor(1), call.tensor(2)), bias);
}

ValueId bmm(const AtenCall& call) {
  ValueId a = call.tensor(0);
  ValueId b = call.tensor(1);
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

ValueId embedding(const AtenCall& call) { return call.builder.emit(OpCode::kGather, {call.tensor(0), call.tensor(1)}); }

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

}  // namespace weft::capture
