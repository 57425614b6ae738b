#include "stablehlo/scattered.h"

#include <functional>
#include <numeric>

namespace weft::stablehlo {
namespace {

/// The identity element of `op`.
Tensor identity(Emitter& emit, const Tensor& like, std::string_view op) {
  if (op == "maximum") return emit.least(like.type);
  if (op == "minimum") return emit.greatest(like.type);
  return emit.like(op == "multiply" ? 1 : 0, like);
}

/// The first `sizes` of each dim.
Tensor corner(Emitter& emit, Tensor tensor, const Sizes& sizes) {
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    if (tensor.type.sizes[dim] != sizes[dim]) tensor = emit.slice(tensor, static_cast<int64_t>(dim), 0, sizes[dim]);
  return tensor;
}

}  // namespace

Tensor join_rows(Emitter& emit, const Tensor& table, const Tensor& index, const Tensor& updates,
                 const ScatterReduction& how) {
  const DType dtype = compute_type(table.type.dtype);
  const Tensor old = emit.convert(table, dtype), fresh = emit.convert(updates, dtype);
  const Tensor hits = emit.scatter("add", emit.like(0, old), index, emit.like(1, fresh));
  const Tensor is_hit = emit.compare("GT", hits, emit.like(0, hits));
  const Tensor start = how.includes_self ? old : emit.select(is_hit, identity(emit, old, how.op), old);
  Tensor joined = emit.scatter(how.op, start, index, fresh);
  if (how.is_mean) {
    const Tensor one = emit.like(1, hits);
    const Tensor counted = how.includes_self ? emit.binary("add", hits, one) : emit.binary("maximum", hits, one);
    joined = emit.binary("divide", joined, counted);
  }
  return emit.convert(joined, table.type.dtype);
}

Tensor join_elements(Emitter& emit, const Tensor& table, int64_t dim, const Tensor& index, const Tensor& updates,
                     const ScatterReduction& how) {
  const Tensor part = corner(emit, updates, index.type.sizes);
  const Tensor numbers = emit.convert(index, DType::kI64);
  Tensor places = emit.like(0, numbers);
  int64_t stride = 1;
  for (int64_t i = table.type.rank() - 1; i >= 0; --i) {
    const Tensor along = i == dim ? numbers : emit.iota(numbers.type, i);
    places = emit.binary("add", places, emit.binary("multiply", along, emit.like(static_cast<double>(stride), along)));
    stride *= table.type.sizes[static_cast<size_t>(i)];
  }
  const int64_t count = std::reduce(index.type.sizes.begin(), index.type.sizes.end(), int64_t{1}, std::multiplies<>());
  const Tensor joined =
      join_rows(emit, emit.reshape(table, {stride}), emit.reshape(places, {count}), emit.reshape(part, {count}), how);
  return emit.reshape(joined, table.type.sizes);
}

}  // namespace weft::stablehlo
