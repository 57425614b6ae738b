#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdlib>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

/// As many windows may be taken one by one.
constexpr int64_t kFewWindows = 16;

/// Part i has sizes[i] elements.
std::vector<Tensor> split_with_sizes(const Tensor& x, at::IntArrayRef sizes, int64_t dim) {
  std::vector<Tensor> parts;
  int64_t start = 0;
  for (int64_t size : sizes) {
    parts.push_back(x.narrow(dim, start, size));
    start += size;
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  int64_t length = x.size(dim);
  if (size <= 0) return {x.narrow(dim, 0, length)};
  std::vector<Tensor> parts;
  for (int64_t start = 0; start < std::max<int64_t>(length, 1); start += size)
    parts.push_back(x.narrow(dim, start, std::min(size, length - start)));
  return parts;
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < x.size(dim); ++i) parts.push_back(x.select(dim, i));
  return parts;
}

Tensor diagonal(const Tensor& given, int64_t offset, int64_t dim1, int64_t dim2) {
  Tensor x = given.movedim({dim1, dim2}, {-2, -1});
  int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  int64_t length = std::max<int64_t>(std::min(x.size(-2) - row, x.size(-1) - column), 0);
  if (length == 0) return x.flatten(-2).narrow(-1, 0, 0);
  x = x.narrow(-2, row, length).narrow(-1, column, length);
  if (length == 1) return x.squeeze(-1);
  // In the flattened matrix every (length + 1)th element is on the diagonal.
  Tensor padded = at::constant_pad_nd(x.flatten(-2), {0, length});
  return padded.unflatten(-1, {length, length + 1}).select(-1, 0);
}

Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  int64_t size = x.size(-1) + std::abs(offset), before = std::max<int64_t>(offset, 0);
  Tensor row = at::constant_pad_nd(x, {before, size - x.size(-1) - before}).unsqueeze(-2);
  Tensor index = at::arange(size, at::kLong);
  Tensor on_it = index.unsqueeze(0).eq(index.unsqueeze(1) + offset);
  return select(on_it, row, 0).movedim({-2, -1}, {dim1, dim2});
}

Tensor trace(const Tensor& x) { return decompose::diagonal(x, 0, 0, 1).sum(); }

Tensor diagonal_scatter(const Tensor& x, const Tensor& source, int64_t offset, int64_t dim1, int64_t dim2) {
  Tensor moved = x.movedim({dim1, dim2}, {-2, -1});
  Tensor row = at::arange(moved.size(-2), at::kLong), column = at::arange(moved.size(-1), at::kLong).unsqueeze(0);
  int64_t length = source.size(-1);
  Tensor spread;
  if (length > 0) {
    Tensor place = (row - std::max<int64_t>(-offset, 0)).clamp(0, length - 1);
    spread = source.index_select(-1, place).unsqueeze(-1);
  } else {
    spread = source.sum(-1, true).unsqueeze(-1);
  }
  return at::where(column.eq(row.unsqueeze(1) + offset), spread, moved).movedim({-2, -1}, {dim1, dim2});
}

/// Windows of `size` elements, `step` apart, as blocks of `step` elements: window i has the blocks from i on.
Tensor unfold(const Tensor& x, int64_t dimension, int64_t size, int64_t step) {
  if (x.dim() == 0) return x.reshape({1}).narrow(0, 0, size);
  const int64_t dim = at::maybe_wrap_dim(dimension, x.dim());
  const int64_t count = (x.size(dim) - size) / step + 1, blocks = (size + step - 1) / step;
  if (size == 0 || count < std::min(blocks, kFewWindows)) {
    std::vector<Tensor> windows;
    for (int64_t i = 0; i < count; ++i) windows.push_back(x.narrow(dim, i * step, size));
    return at::stack(windows, dim).movedim(dim + 1, -1);
  }
  const int64_t all = count + blocks - 1;
  const Tensor in_blocks = of_length(x.movedim(dim, -1), all * step).unflatten(-1, {all, step});
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < blocks; ++i) parts.push_back(in_blocks.narrow(-2, i, count));
  return of_length(at::cat(parts, -1), size).movedim(-2, dim);
}

// A program's tensors stand for tensors of any strides and offsets, so the functions below can't be expressed by
// indexing.
Tensor as_strided(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<int64_t>) {
  refuse(
      "as_strided: a program's tensors have no place in memory that it could refer to; x.unfold(dim, size, step) gives "
      "windows, x.reshape(-1)[index] any elements");
}

Tensor as_strided_copy(const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<int64_t>) {
  refuse(
      "as_strided_copy: a program's tensors have no place in memory that it could refer to; x.unfold(dim, size, step) "
      "gives windows, x.reshape(-1)[index] any elements");
}

Tensor as_strided_scatter(const Tensor&, const Tensor&, at::IntArrayRef, at::IntArrayRef, std::optional<int64_t>) {
  refuse(
      "as_strided_scatter: a program's tensors have no place in memory that it could refer to; "
      "x.reshape(-1).index_copy(0, index, source.reshape(-1)) sets any elements");
}

Tensor resize(const Tensor&, at::IntArrayRef, std::optional<at::MemoryFormat>) {
  refuse(
      "resize: it takes elements in the order of memory, which a program's tensors have none of; "
      "x.reshape(-1)[:n].reshape(sizes) takes fewer elements, torch.nn.functional.pad adds some");
}

Tensor take(const Tensor& x, const Tensor& index) {
  c10::List<OptionalTensor> indices;
  indices.push_back(index);
  return at::index(x.reshape({-1}), indices);
}

Tensor cross(const Tensor& x, const Tensor& y, int64_t dim) {
  auto shown = at::broadcast_tensors({x, y});
  const Tensor &a = shown[0], &b = shown[1];
  return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim);
}

}  // namespace

void add_movement(Table& table) {
  table.add("split", "Tensor", split);
  table.add("unsafe_split", "Tensor", split);
  table.add("split_with_sizes", "", split_with_sizes);
  table.add("unsafe_split_with_sizes", "", split_with_sizes);
  table.add("unbind", "int", unbind);
  table.add("diagonal", "", diagonal);
  table.add("diag_embed", "", diag_embed);
  table.add("trace", "", trace);
  table.add("diagonal_scatter", "", diagonal_scatter);
  table.add("unfold", "", unfold);
  table.add("as_strided", "", as_strided);
  table.add("as_strided_copy", "", as_strided_copy);
  table.add("as_strided_scatter", "", as_strided_scatter);
  table.add("resize", "", resize);
  table.add("take", "", take);
  table.add("linalg_cross", "", cross);
}

}  // namespace weft::decompose
