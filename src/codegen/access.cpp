#include "codegen/access.h"

namespace weft::codegen {

using ir::Dim;
using llvm::Value;

RowIndex::RowIndex(Frame& frame, const ir::Shape& domain, Value* group, Value* within)
    : frame_(frame),
      domain_(domain),
      row_(frame.b.CreateAdd(frame.b.CreateMul(group, frame.size(domain[domain.size() - 2])), within)),
      group_(group),
      within_(within) {}

Value* RowIndex::index(size_t dim) {
  size_t leading = domain_.size() - 1;
  if (leading == 1) return row_;
  if (within_ && dim == leading - 1) return within_;
  Value*& cached = indices_[dim];
  if (cached) return cached;
  Dim inner(1);
  for (size_t d = dim + 1; d < (group_ ? leading - 1 : leading); ++d) inner = inner * domain_[d];
  Value* all = group_ ? group_ : row_;
  Value* index = inner == Dim(1) ? all : frame_.b.CreateUDiv(all, frame_.size(inner));
  if (dim > 0) index = frame_.b.CreateURem(index, frame_.size(domain_[dim]));
  return cached = index;
}

std::optional<Dim> RowIndex::uniform_stride(const planning::View& view, const std::vector<Dim>& strides) const {
  size_t leading = domain_.size() - 1;
  std::vector<Dim> of_dim(leading, Dim(0));
  for (size_t j = 0; j < view.from.size(); ++j)
    if (view.from[j] >= 0 && static_cast<size_t>(view.from[j]) < leading)
      of_dim[static_cast<size_t>(view.from[j])] = strides[j];
  if (leading == 0) return Dim(0);
  for (size_t d = 0; d + 1 < leading; ++d)
    if (of_dim[d] != of_dim[d + 1] * domain_[d + 1]) return std::nullopt;
  return of_dim[leading - 1];
}

Value* RowIndex::elements(const planning::View& view) {
  const ir::Shape& shape = frame_.type(view.root).shape;
  std::vector<Dim> strides(shape.size(), Dim(1));
  for (size_t j = shape.size(); j-- > 1;) strides[j - 1] = strides[j] * shape[j];
  Value* sum = frame_.i64(0);
  auto add = [&](Value* count, const Dim& stride) {
    sum = frame_.b.CreateAdd(sum, frame_.b.CreateMul(count, frame_.size(stride)));
  };
  for (size_t j = 0; j < shape.size(); ++j)
    if (view.start[j] != 0) add(frame_.i64(view.start[j]), strides[j]);
  if (auto stride = uniform_stride(view, strides)) {
    if (*stride != Dim(0)) add(row_, *stride);
    return sum;
  }
  size_t leading = domain_.size() - 1;
  for (size_t j = 0; j < shape.size(); ++j)
    if (view.from[j] >= 0 && static_cast<size_t>(view.from[j]) < leading)
      add(index(static_cast<size_t>(view.from[j])), strides[j]);
  return sum;
}

}  // namespace weft::codegen
