#include "passes/native_calls/windows.h"

namespace weft::passes {

using ir::Builder;
using ir::OpCode;
using ir::Shape;
using ir::Type;
using ir::ValueId;

namespace {

/// `count` elements of a dim from `begin` on, each `stride` from the one before.
ValueId strided(Builder& builder, ValueId value, size_t dim, int64_t begin, int64_t count, int64_t stride) {
  if (stride == 1 || count <= 1) return cut(builder, value, dim, begin, count);
  const int64_t size = builder.type(value).shape[dim].constant(), end = begin + count * stride;
  const auto at = static_cast<int64_t>(dim);
  if (end > size) value = builder.emit(OpCode::kPad, {value}, {{"dim", at}, {"low", int64_t{0}}, {"high", end - size}});
  value = cut(builder, value, dim, begin, count * stride);
  Shape shape = builder.type(value).shape;
  shape[dim] = count;
  shape.insert(shape.begin() + at + 1, stride);
  value = cut(builder, builder.reshape(value, shape), dim + 1, 0, 1);
  shape.erase(shape.begin() + at + 1);
  return builder.reshape(value, shape);
}

/// `value` [C] for each element of the last dim of a shape.
ValueId along_last(Builder& builder, ValueId value, const Shape& shape) {
  return builder.broadcast(value, shape, {static_cast<int64_t>(shape.size()) - 1});
}

}  // namespace

ValueId cut(Builder& builder, ValueId value, size_t dim, int64_t first, int64_t count) {
  if (first == 0 && builder.type(value).shape.at(dim) == ir::Dim(count)) return value;
  return builder.slice(value, static_cast<int64_t>(dim), first, first + count);
}

ValueId padded(Builder& builder, ValueId value, size_t dim, int64_t elements, double fill) {
  Type side = builder.type(value);
  side.shape[dim] = elements;
  const ValueId part = builder.constant(fill, side);
  return builder.concat({part, value, part}, static_cast<int64_t>(dim));
}

ValueId spread_out(Builder& builder, ValueId value, size_t dim, int64_t times) {
  if (times == 1) return value;
  Shape shape = builder.type(value).shape;
  const ir::Dim size = shape[dim];
  const auto behind = static_cast<int64_t>(dim) + 1;
  shape.insert(shape.begin() + behind, 1);
  value = builder.emit(OpCode::kPad, {builder.reshape(value, shape)},
                       {{"dim", behind}, {"low", int64_t{0}}, {"high", times - 1}});
  shape.erase(shape.begin() + behind);
  shape[dim] = size * ir::Dim(times);
  return builder.reshape(value, shape);
}

std::vector<int64_t> channels_last(size_t rank) {
  std::vector<int64_t> perm{0};
  for (size_t i = 2; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
  perm.push_back(1);
  return perm;
}

std::vector<int64_t> channels_second(size_t rank) {
  std::vector<int64_t> perm{0, static_cast<int64_t>(rank) - 1};
  for (size_t i = 1; i + 1 < rank; ++i) perm.push_back(static_cast<int64_t>(i));
  return perm;
}

std::vector<ValueId> Windows::taps(Builder& builder, ValueId value, const std::vector<int64_t>& begins,
                                   const std::vector<int64_t>& counts) const {
  std::vector<ValueId> found{value};
  for (size_t i = 0; i < dims.size(); ++i) {
    const Window& window = dims[i];
    std::vector<ValueId> next;
    for (ValueId part : found)
      for (int64_t k = 0; k < window.kernel; ++k)
        next.push_back(strided(builder, part, first + i, begins[i] + k * window.dilation, counts[i], window.stride));
    found = std::move(next);
  }
  return found;
}

ValueId Windows::in_rows(Builder& builder, ValueId value, int64_t begin, int64_t count) const {
  const Window& window = dims.at(0);
  const auto rank = static_cast<int64_t>(builder.type(value).shape.size()), dim = static_cast<int64_t>(first);
  std::vector<ValueId> parts;
  // Long windows are cut out one by one; of short ones each element is taken of all.
  const bool is_long = window.dilation == 1 && count < window.kernel;
  for (ValueId part : is_long ? std::vector<ValueId>() : taps(builder, value, {begin}, {count})) {
    Shape shape = builder.type(part).shape;
    shape.emplace_back(1);
    parts.push_back(builder.reshape(part, shape));
  }
  std::vector<int64_t> elements_last;
  for (int64_t i = 0; i < rank; ++i)
    if (i != dim) elements_last.push_back(i);
  elements_last.push_back(dim);
  for (int64_t i = 0; is_long && i < count; ++i) {
    const ValueId part = cut(builder, value, first, begin + i * window.stride, window.kernel);
    Shape shape = builder.type(part).shape;
    shape.erase(shape.begin() + dim);
    shape.insert(shape.begin() + dim, 1);
    shape.emplace_back(window.kernel);
    parts.push_back(builder.reshape(builder.transpose(part, elements_last), shape));
  }
  if (parts.size() == 1) return parts[0];
  return builder.concat(parts, is_long ? dim : rank);
}

ConvolutionWeights convolution_weights(Builder& builder, ValueId weight, ValueId bias, int64_t groups,
                                       int64_t x_channels) {
  const Shape shape = builder.type(weight).shape;
  const int64_t out = shape[0].constant(), in = shape[1].constant();
  int64_t taps = 1;
  for (size_t i = 2; i < shape.size(); ++i) taps *= shape[i].constant();
  ConvolutionWeights weights;
  weights.bias = bias;
  weights.is_depthwise = groups == x_channels && out == x_channels;
  const ValueId flat = builder.reshape(weight, {out, in, taps});
  if (weights.is_depthwise) {
    for (int64_t k = 0; k < taps; ++k)
      weights.by_group.push_back(builder.reshape(builder.slice(flat, 2, k, k + 1), {out}));
    return weights;
  }
  const ValueId rows = builder.reshape(builder.transpose(flat, {2, 1, 0}), {taps * in, out});
  const int64_t each = out / groups;
  for (int64_t g = 0; g < groups; ++g) weights.by_group.push_back(cut(builder, rows, 1, g * each, each));
  return weights;
}

ValueId turned_weights(Builder& builder, ValueId weight, int64_t groups) {
  Shape shape = builder.type(weight).shape;
  const int64_t in = shape[0].constant() / groups, out = shape[1].constant();
  int64_t taps = 1;
  for (size_t i = 2; i < shape.size(); ++i) taps *= shape[i].constant();
  ValueId value = builder.reshape(weight, {groups, in, out, taps});
  value = builder.emit(OpCode::kReverse, {builder.transpose(value, {0, 2, 1, 3})}, {{"dim", int64_t{3}}});
  shape[0] = groups * out;
  shape[1] = in;
  return builder.reshape(value, shape);
}

ValueId convolve(Builder& builder, const std::vector<ValueId>& taps, const ConvolutionWeights& weights) {
  const size_t last = builder.type(taps[0]).shape.size() - 1;
  ValueId sum = ir::kNoValue;
  if (weights.is_depthwise) {
    for (size_t k = 0; k < taps.size(); ++k) {
      const ValueId term = builder.mul(taps[k], along_last(builder, weights.by_group[k], builder.type(taps[k]).shape));
      sum = k == 0 ? term : builder.add(sum, term);
    }
  } else {
    const auto groups = static_cast<int64_t>(weights.by_group.size());
    const int64_t each = builder.type(taps[0]).shape[last].constant() / groups;
    std::vector<ValueId> results;
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<ValueId> columns;
      for (ValueId tap : taps) columns.push_back(cut(builder, tap, last, g * each, each));
      const ValueId joined = columns.size() == 1 ? columns[0] : builder.concat(columns, static_cast<int64_t>(last));
      results.push_back(builder.matmul(joined, weights.by_group[static_cast<size_t>(g)]));
    }
    sum = results.size() == 1 ? results[0] : builder.concat(results, static_cast<int64_t>(last));
  }
  if (weights.bias == ir::kNoValue) return sum;
  return builder.add(sum, along_last(builder, weights.bias, builder.type(sum).shape));
}

}  // namespace weft::passes
