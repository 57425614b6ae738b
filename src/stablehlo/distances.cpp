#include "stablehlo/distances.h"

#include <numeric>

namespace weft::stablehlo {
namespace {

/// All dims of [..., n, m, k] but `without`, counted from the end: those of a tensor that lacks this dim.
Sizes dims_but(int64_t rank, int64_t without) {
  Sizes dims;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (dim != rank - without) dims.push_back(dim);
  return dims;
}

/// Each row of a less each row of b, [..., n, m, k].
Tensor differences(Emitter& emit, const Tensor& a, const Tensor& b) {
  const int64_t rank = a.type.rank() + 1;
  Sizes sizes = a.type.sizes;
  sizes.insert(sizes.end() - 1, b.type.sizes[b.type.sizes.size() - 2]);
  return emit.binary("subtract", emit.broadcast(a, sizes, dims_but(rank, 2)),
                     emit.broadcast(b, sizes, dims_but(rank, 3)));
}

}  // namespace

Tensor distances(Emitter& emit, const Tensor& a, const Tensor& b, int64_t p) {
  const Tensor difference = differences(emit, a, b);
  const Tensor terms = p == 1 ? emit.unary("abs", difference) : emit.binary("multiply", difference, difference);
  const Tensor sums = emit.reduce("add", terms, emit.constant(0, {terms.type.dtype, {}}), {terms.type.rank() - 1});
  return p == 1 ? sums : emit.unary("sqrt", sums);
}

Tensor distances_within(Emitter& emit, const Tensor& a, int64_t p) {
  const int64_t count = a.type.sizes[0];
  if (count < 2) return emit.constant(0, {a.type.dtype, {0}});
  const Tensor all = distances(emit, a, a, p);
  std::vector<Tensor> rows;
  for (int64_t i = 0; i + 1 < count; ++i) {
    const Tensor row = emit.slice(emit.slice(all, 0, i, i + 1), 1, i + 1, count);
    rows.push_back(emit.reshape(row, {count - i - 1}));
  }
  return emit.concatenate(rows, 0);
}

Tensor distances_by_first(Emitter& emit, const Tensor& cotangent, const Tensor& a, const Tensor& b, int64_t p,
                          const Tensor& found) {
  const Tensor difference = differences(emit, a, b);
  const int64_t rank = difference.type.rank();
  const auto spread = [&](const Tensor& t) { return emit.broadcast(t, difference.type.sizes, dims_but(rank, 1)); };
  Tensor slope = emit.unary("sign", difference);
  if (p == 2) {
    const Tensor length = spread(found), zero = emit.like(0, difference);
    slope = emit.select(emit.compare("EQ", length, zero), zero, emit.binary("divide", difference, length));
  }
  const Tensor terms = emit.binary("multiply", slope, spread(cotangent));
  return emit.reduce("add", terms, emit.constant(0, {terms.type.dtype, {}}), {rank - 2});
}

}  // namespace weft::stablehlo
