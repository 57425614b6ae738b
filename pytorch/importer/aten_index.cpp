#include "importer/aten_index.h"

#include <algorithm>
#include <numeric>

#include "importer/aten_rows.h"
#include "importer/aten_shapes.h"

namespace weft::importer {

using ir::Dim;
using ir::OpCode;
using ir::Shape;
using ir::ValueId;

namespace {

using Dims = std::vector<int64_t>;

ValueId filled_with(const AtenCall& call, const Shape& shape, double value) {
  return call.builder.constant(value, ir::Type{DType::kI64, shape});
}

/// A dim's size as an index, in every element of `shape`.
ValueId size_like(const AtenCall& call, const Dim& dim, Shape shape) {  // a copy, since types move as values are added
  if (dim.is_constant()) return filled_with(call, shape, static_cast<double>(dim.constant()));
  return call.builder.broadcast(call.size(dim, DType::kI64), shape, {});
}

ValueId times(const AtenCall& call, ValueId index, const Dim& stride) {
  if (stride == Dim(1)) return index;
  return call.builder.mul(index, size_like(call, stride, call.type(index).shape));
}

ValueId is_outside(const AtenCall& call, ValueId index, const Dim& size) {
  const Shape shape = call.type(index).shape;
  return call.binary(OpCode::kOr, call.binary(OpCode::kLt, index, filled_with(call, shape, 0)),
                     call.binary(OpCode::kGe, index, size_like(call, size, shape)));
}

/// Negative indices count from the end.
ValueId wrapped(const AtenCall& call, ValueId index, const Dim& size) {
  const Shape shape = call.type(index).shape;
  ValueId from_end = call.builder.add(index, size_like(call, size, shape));
  return call.builder.select(call.binary(OpCode::kLt, index, filled_with(call, shape, 0)), from_end, index);
}

/// Combines indices of several dims into one flat index. If an index is outside its dim, the flat index is -1, so that
/// it stays an error.
class FlatIndex {
 public:
  explicit FlatIndex(const AtenCall& call) : call_(call) {}

  /// `checked`: whether the index comes from the user and may be outside its dim.
  void add(ValueId index, const Dim& size, const Dim& stride, bool checked) {
    if (checked) {
      ValueId outside = is_outside(call_, index, size);
      outside_ = outside_ == ir::kNoValue ? outside : call_.binary(OpCode::kOr, outside_, outside);
    }
    ValueId part = times(call_, index, stride);
    sum_ = sum_ == ir::kNoValue ? part : call_.builder.add(sum_, part);
  }

  ValueId result() const {
    if (outside_ == ir::kNoValue) return sum_;
    return call_.builder.select(outside_, filled_with(call_, call_.type(sum_).shape, -1), sum_);
  }

 private:
  const AtenCall& call_;
  ValueId sum_ = ir::kNoValue;
  ValueId outside_ = ir::kNoValue;
};

/// x with `dim` as its first dim, and the way back.
ValueId in_front(const AtenCall& call, ValueId x, int64_t dim) {
  Dims perm{dim};
  for (int64_t i = 0; i < call.type(x).rank(); ++i)
    if (i != dim) perm.push_back(i);
  return permuted(call, x, std::move(perm));
}

ValueId from_front(const AtenCall& call, ValueId x, int64_t dim) {
  Dims perm;
  for (int64_t i = 1; i < call.type(x).rank(); ++i) perm.push_back(i);
  perm.insert(perm.begin() + dim, 0);
  return permuted(call, x, std::move(perm));
}

ValueId index_argument(const AtenCall& call, size_t i) { return call.cast(call.tensor(i), DType::kI64); }

/// A scalar as a vector of one element.
ValueId at_least_vector(const AtenCall& call, ValueId x) {
  return call.type(x).rank() == 0 ? call.builder.reshape(x, {Dim(1)}) : x;
}

ValueId flattened(const AtenCall& call, ValueId x) { return call.reshape(x, {element_count(call.type(x).shape)}); }

/// The flat indices into x (argument 0) of the elements of torch.gather and torch.scatter.
ValueId element_index(const AtenCall& call) {
  Shape shape = call.type(at_least_vector(call, call.tensor(0))).shape;
  ValueId index = at_least_vector(call, index_argument(call, 2));
  Shape index_shape = call.type(index).shape;
  auto along = static_cast<size_t>(call.dim(1, static_cast<int64_t>(shape.size())));
  FlatIndex flat(call);
  Dim stride(1);
  for (size_t d = shape.size(); d-- > 0; stride = stride * shape[d]) {
    ValueId part = d == along ? index : call.iota(index_shape, d, DType::kI64);
    if (d == along || index_shape[d] != Dim(1)) flat.add(part, shape[d], stride, d == along);
  }
  return flat.result();
}

/// x cut to a smaller shape, from the beginning of each dim.
ValueId cut_to(const AtenCall& call, ValueId x, Shape shape) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (call.type(x).shape[d] == shape[d]) continue;
    x = call.builder.slice(x, static_cast<int64_t>(d), 0, shape[d]);
  }
  return x;
}

/// x with rows along a dim replaced by `rows`, whose first dim is that dim.
ValueId with_rows(const AtenCall& call, ValueId x, int64_t dim, ValueId index, ValueId rows) {
  return from_front(call, call.builder.emit(OpCode::kScatter, {in_front(call, x, dim), index, rows}), dim);
}

}  // namespace

ValueId index_select(const AtenCall& call) {
  ValueId x = at_least_vector(call, call.tensor(0));
  ValueId index = at_least_vector(call, call.tensor(2));
  int64_t dim = call.dim(1, call.type(x).rank());
  if (const auto start = range_start(call, index))
    return call.reshape(rows_at(call, x, dim, *start, call.type(index).shape[0]), call.result.shape);
  ValueId rows = call.builder.emit(OpCode::kGather, {in_front(call, x, dim), index});
  return call.reshape(from_front(call, rows, dim), call.result.shape);
}

ValueId gather(const AtenCall& call) {
  ValueId x = flattened(call, call.tensor(0));
  return call.reshape(call.builder.emit(OpCode::kGather, {x, element_index(call)}), call.result.shape);
}

ValueId scatter(const AtenCall& call) {
  ValueId x = flattened(call, call.tensor(0));
  ValueId index = element_index(call);
  const Shape shape = call.type(index).shape;
  ValueId values = call.is_tensor(3) ? cut_to(call, at_least_vector(call, call.tensor(3)), shape)
                                     : call.builder.constant(call.number(3), ir::Type{call.result.dtype, shape});
  return call.reshape(call.builder.emit(OpCode::kScatter, {x, index, values}), call.result.shape);
}

ValueId scatter_add(const AtenCall& call) {
  ValueId x = flattened(call, call.tensor(0));
  ValueId index = element_index(call);
  ValueId values = cut_to(call, at_least_vector(call, call.tensor(3)), call.type(index).shape);
  ir::Type type = call.type(x);
  ValueId sums = call.builder.emit(OpCode::kScatterAdd, {index, values}, {}, &type);
  return call.reshape(call.builder.add(x, sums), call.result.shape);
}

ValueId index_add(const AtenCall& call) {
  ValueId x = at_least_vector(call, call.tensor(0));
  int64_t dim = call.dim(1, call.type(x).rank());
  ValueId rows = in_front(call, at_least_vector(call, call.tensor(3)), dim);
  double alpha = call.number(4);
  if (alpha != 1) rows = call.builder.mul(rows, call.constant(alpha, rows));
  ValueId front = in_front(call, x, dim);
  ir::Type type = call.type(front);
  ValueId sums = call.builder.emit(OpCode::kScatterAdd, {at_least_vector(call, call.tensor(2)), rows}, {}, &type);
  return call.reshape(from_front(call, call.builder.add(front, sums), dim), call.result.shape);
}

ValueId index_copy(const AtenCall& call) {
  ValueId x = at_least_vector(call, call.tensor(0));
  int64_t dim = call.dim(1, call.type(x).rank());
  ValueId index = at_least_vector(call, index_argument(call, 2));
  index = wrapped(call, index, call.type(x).shape[static_cast<size_t>(dim)]);
  ValueId source = at_least_vector(call, call.tensor(3));
  if (const auto start = range_start(call, index))
    return call.reshape(with_rows_at(call, x, dim, *start, source), call.result.shape);
  ValueId rows = in_front(call, source, dim);
  return call.reshape(with_rows(call, x, dim, index, rows), call.result.shape);
}

/// Uses a mask: an index that occurs twice then fills once, and counts once in the derivative of `value`.
ValueId index_fill(const AtenCall& call) {
  ValueId x = at_least_vector(call, call.tensor(0));
  const Shape shape = call.type(x).shape;
  int64_t dim = call.dim(1, static_cast<int64_t>(shape.size()));
  const Dim size = shape[static_cast<size_t>(dim)];
  ValueId index = wrapped(call, at_least_vector(call, index_argument(call, 2)), size);
  ValueId nowhere = call.builder.constant(0.0, ir::Type{DType::kBool, {size}});
  ValueId there = call.builder.constant(1.0, ir::Type{DType::kBool, call.type(index).shape});
  ValueId mask = call.builder.broadcast(call.builder.emit(OpCode::kScatter, {nowhere, index, there}), shape, {dim});
  ValueId value = call.is_tensor(3) ? call.expand(call.cast(call.tensor(3), call.result.dtype), shape)
                                    : call.builder.constant(call.number(3), ir::Type{call.result.dtype, shape});
  return call.reshape(call.builder.select(mask, value, x), call.result.shape);
}

namespace {

/// x[i, :, j] as a gather: x with its indexed dims in front, merged into one dim; one index for that dim; and the place
/// of the index's dims in PyTorch's result.
struct Indexing {
  Dims perm;           ///< x's dims: the indexed ones, then the rest
  size_t indexed = 0;  ///< how many dims are indexed
  int64_t place = 0;   ///< the place of the index's dims in the result
  ValueId index = ir::kNoValue;
  Shape table;  ///< the shape of x permuted, with the indexed dims as one
};

Shape broadcast_shape(const AtenCall& call, const std::vector<ValueId>& values) {
  Shape shape;
  for (ValueId v : values) {
    const Shape& each = call.type(v).shape;
    if (each.size() > shape.size()) shape.insert(shape.begin(), each.size() - shape.size(), Dim(1));
    for (size_t i = 0; i < each.size(); ++i) {
      Dim& dim = shape[shape.size() - each.size() + i];
      if (dim == Dim(1)) dim = each[i];
    }
  }
  return shape;
}

Indexing indexing_of(const AtenCall& call, ValueId x) {
  const Shape shape = call.type(x).shape;
  std::vector<std::optional<Value>> arguments = call.optional_tensors(1);
  arguments.resize(shape.size());
  Indexing result;
  std::vector<ValueId> indices;
  Dims rest;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!arguments[d]) {
      rest.push_back(static_cast<int64_t>(d));
      continue;
    }
    DType dtype = call.type(arguments[d]->id).dtype;
    check(!is_floating(dtype) && dtype != DType::kBool && dtype != DType::kU8,
          "{}: an index that is a mask, whose result's size depends on its data", call.op);
    indices.push_back(call.cast(arguments[d]->id, DType::kI64));
    result.perm.push_back(static_cast<int64_t>(d));
  }
  check(!indices.empty(), "{}: no index", call.op);
  result.indexed = indices.size();
  bool adjacent = result.perm.back() - result.perm.front() + 1 == static_cast<int64_t>(indices.size());
  result.place = adjacent ? result.perm.front() : 0;
  Shape common = broadcast_shape(call, indices);
  FlatIndex flat(call);
  Dim stride(1);
  for (size_t i = indices.size(); i-- > 0;) {
    const Dim& size = shape[static_cast<size_t>(result.perm[i])];
    ValueId index = wrapped(call, call.expand(indices[i], common), size);
    flat.add(index, size, stride, indices.size() > 1);
    stride = stride * size;
  }
  result.index = flat.result();
  result.table.push_back(stride);
  for (int64_t d : rest) result.table.push_back(shape[static_cast<size_t>(d)]);
  result.perm.insert(result.perm.end(), rest.begin(), rest.end());
  return result;
}

/// For x[:, i] with a single number as its index: the dim, and the number counted from the front.
struct OneRow {
  int64_t dim;
  ValueId start;
};

std::optional<OneRow> one_row(const AtenCall& call, ValueId x) {
  const std::vector<std::optional<Value>> given = call.optional_tensors(1);
  const auto first = std::ranges::find_if(given, [](const auto& index) { return index.has_value(); });
  if (first == given.end() ||
      std::count_if(first, given.end(), [](const auto& index) { return index.has_value(); }) > 1)
    return {};
  const ir::Type type = call.type((*first)->id);
  const bool is_number = !is_floating(type.dtype) && type.dtype != DType::kBool && type.dtype != DType::kU8;
  if (!is_number || element_count(type.shape) != Dim(1)) return {};
  const auto dim = first - given.begin();
  const ValueId start = call.reshape(call.cast((*first)->id, DType::kI64), {});
  return OneRow{dim, wrapped(call, start, call.type(x).shape[static_cast<size_t>(dim)])};
}

/// The permutation of [index dims, rest] that moves the index's dims to `place`.
Dims placing(int64_t index_rank, int64_t rank, int64_t place) {
  Dims perm;
  for (int64_t i = 0; i < place; ++i) perm.push_back(index_rank + i);
  for (int64_t i = 0; i < index_rank; ++i) perm.push_back(i);
  for (int64_t i = index_rank + place; i < rank; ++i) perm.push_back(i);
  return perm;
}

Dims inverse(const Dims& perm) {
  Dims result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}

}  // namespace

ValueId index(const AtenCall& call) {
  ValueId x = call.tensor(0);
  if (const auto row = one_row(call, x))
    return call.reshape(rows_at(call, x, row->dim, row->start, Dim(1)), call.result.shape);
  Indexing indexing = indexing_of(call, x);
  ValueId table = call.reshape(permuted(call, x, indexing.perm), indexing.table);
  ValueId rows = call.builder.emit(OpCode::kGather, {table, indexing.index});
  return permuted(call, rows, placing(call.type(indexing.index).rank(), call.result.rank(), indexing.place));
}

namespace {

/// Puts values where a mask is true. The mask is for the dims after the first `skipped`. All places of the mask must
/// get the same value.
ValueId put_where(const AtenCall& call, ValueId mask, size_t skipped) {
  const Shape shape = call.type(call.tensor(0)).shape;
  size_t rank = call.type(mask).shape.size();
  check(rank >= 1, "{}: a mask without dims", call.op);
  Shape places(shape.begin() + static_cast<int64_t>(skipped + rank), shape.end());
  Shape before(shape.begin(), shape.begin() + static_cast<int64_t>(skipped));
  // x[:, mask] has one dim in place of the mask's dims. The values broadcast to [before..., n, behind...], and n is
  // unknown.
  ValueId values = call.cast(call.tensor(2), call.result.dtype);
  Shape given = call.type(values).shape;
  if (given.size() > places.size()) {
    check(given[given.size() - 1 - places.size()] == Dim(1),
          "{}: a mask takes one value for all its places, not one for each", call.op);
    given.insert(given.end() - static_cast<int64_t>(places.size()), rank - 1, Dim(1));
    values = call.reshape(values, given);
  }
  Dims dims(rank);
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(skipped));
  ValueId everywhere = call.builder.broadcast(mask, shape, std::move(dims));
  return call.builder.select(everywhere, call.expand(values, shape), call.tensor(0));
}

/// Replaces x[i], whose index has dims of size 1 only, by the broadcast value.
ValueId put_row(const AtenCall& call, ValueId x, const OneRow& row) {
  Shape rows = call.type(x).shape, shown = rows;
  const auto place = shown.begin() + row.dim;
  rows[static_cast<size_t>(row.dim)] = Dim(1);
  const std::vector<std::optional<Value>> given = call.optional_tensors(1);
  const Shape index = call.type(given[static_cast<size_t>(row.dim)]->id).shape;
  shown.insert(shown.erase(place), index.begin(), index.end());
  const ValueId value = call.expand(call.cast(call.tensor(2), call.result.dtype), shown);
  return with_rows_at(call, x, row.dim, row.start, call.reshape(value, rows));
}

}  // namespace

ValueId index_put(const AtenCall& call) {
  ValueId x = call.tensor(0);
  std::vector<std::optional<Value>> given = call.optional_tensors(1);
  auto first = std::ranges::find_if(given, [](const auto& index) { return index.has_value(); });
  bool alone = first != given.end() && std::all_of(first + 1, given.end(), [](const auto& index) { return !index; });
  if (alone && call.type((*first)->id).dtype == DType::kBool && !call.flag(3))
    return put_where(call, (*first)->id, static_cast<size_t>(first - given.begin()));
  if (const auto row = call.flag(3) ? std::nullopt : one_row(call, x)) return put_row(call, x, *row);
  Indexing indexing = indexing_of(call, x);
  ValueId front = permuted(call, x, indexing.perm);
  const Shape front_shape = call.type(front).shape;
  ValueId table = call.reshape(front, indexing.table);
  Shape shape = call.type(indexing.index).shape;
  auto index_rank = static_cast<int64_t>(shape.size());
  shape.insert(shape.end(), indexing.table.begin() + 1, indexing.table.end());
  Dims perm = placing(index_rank, static_cast<int64_t>(shape.size()), indexing.place);
  Shape placed;
  for (int64_t d : perm) placed.push_back(shape[static_cast<size_t>(d)]);
  ValueId values = call.expand(call.cast(call.tensor(2), call.result.dtype), placed);
  values = permuted(call, values, inverse(perm));
  ValueId result = ir::kNoValue;
  if (call.flag(3)) {
    ir::Type type = call.type(table);
    result = call.builder.add(table, call.builder.emit(OpCode::kScatterAdd, {indexing.index, values}, {}, &type));
  } else {
    result = call.builder.emit(OpCode::kScatter, {table, indexing.index, values});
  }
  return permuted(call, call.reshape(result, front_shape), inverse(indexing.perm));
}

namespace {

ValueId position(const AtenCall& call, const Dim& size, int64_t index) {
  ValueId number =
      index < 0 ? call.builder.add(call.size(size, DType::kI64), filled_with(call, {}, static_cast<double>(index)))
                : filled_with(call, {}, static_cast<double>(index));
  return call.builder.reshape(number, {Dim(1)});
}

/// x with its elements start..start+count-1 along a dim replaced.
ValueId with_range(const AtenCall& call, ValueId x, int64_t dim, const Dim& start, const Dim& count, ValueId part) {
  const Dim size = call.type(x).shape[static_cast<size_t>(dim)];
  std::vector<ValueId> parts;
  if (start != Dim(0)) parts.push_back(call.builder.slice(x, dim, 0, start));
  if (count != Dim(0)) parts.push_back(part);
  if (start + count != size) parts.push_back(call.builder.slice(x, dim, start + count, size));
  return parts.empty() ? x : call.builder.concat(std::move(parts), dim);
}

}  // namespace

ValueId select_symbolic(const AtenCall& call, ValueId x, int64_t dim, int64_t index) {
  ValueId at = position(call, call.type(x).shape[static_cast<size_t>(dim)], index);
  return call.reshape(call.builder.emit(OpCode::kGather, {in_front(call, x, dim), at}), call.result.shape);
}

namespace {

/// Throws unless a source has the shape of the elements that it replaces. After an `out=` of another shape was filled,
/// PyTorch's functionalization passes it on in that shape.
void check_source(const AtenCall& call, ValueId source, const Shape& replaced) {
  const ir::Type expected{call.type(source).dtype, replaced};
  check(call.type(source) == expected, "{}: the source is {}, but it replaces {}", call.op,
        ir::to_string(call.type(source)), ir::to_string(expected));
}

}  // namespace

/// (x, source, dim, index)
ValueId select_scatter(const AtenCall& call) {
  ValueId x = call.tensor(0);
  int64_t dim = call.dim(2, call.type(x).rank());
  const Dim size = call.type(x).shape[static_cast<size_t>(dim)];
  ValueId source = call.cast(call.tensor(1), call.result.dtype);
  Shape shape = call.type(x).shape;
  shape.erase(shape.begin() + dim);
  check_source(call, source, shape);
  if (size.is_constant() || call.is_size(3)) {
    const Dim index = call.place(3, size);
    shape.insert(shape.begin() + dim, Dim(1));
    return with_range(call, x, dim, index, 1, call.reshape(source, shape));
  }
  shape.insert(shape.begin(), Dim(1));
  return with_rows(call, x, dim, position(call, size, call.integer(3)), call.builder.reshape(source, shape));
}

/// (x, source, dim, start, end, step)
ValueId slice_scatter(const AtenCall& call) {
  ValueId x = call.tensor(0);
  int64_t dim = call.dim(2, call.type(x).rank());
  const Dim size = call.type(x).shape[static_cast<size_t>(dim)];
  ValueId source = call.cast(call.tensor(1), call.result.dtype);
  if (call.type(source) == call.type(x) && call.integer(5) == 1) return source;
  check(call.type(source).rank() == call.type(x).rank(), "{}: the source is {}, but it is put into {}", call.op,
        ir::to_string(call.type(source)), ir::to_string(call.type(x)));
  Shape replaced = call.type(x).shape;
  const Dim count = call.type(source).shape[static_cast<size_t>(dim)];
  replaced[static_cast<size_t>(dim)] = count;
  check_source(call, source, replaced);
  Dim start = call.is_none(3) || count == Dim(0) ? Dim(0) : call.place(3, size);
  if (start.is_constant() && size.is_constant()) start = std::clamp<int64_t>(start.constant(), 0, size.constant());
  if (call.integer(5) == 1) return with_range(call, x, dim, start, count, source);
  check(start.is_constant(), "{}: dim {} is symbolic", call.op, dim);
  ValueId at = call.iota({count}, 0, DType::kI64);
  at = call.builder.mul(at, filled_with(call, {count}, static_cast<double>(call.integer(5))));
  at = call.builder.add(at, filled_with(call, {count}, static_cast<double>(start.constant())));
  return with_rows(call, x, dim, at, in_front(call, source, dim));
}

}  // namespace weft::importer
