#include "codegen/access.h"

namespace weft::codegen {

using ir::Dim;
using ir::Op;
using ir::OpCode;
using llvm::Value;

View resolve(const Schedule& schedule, ir::ValueId value, const ir::Shape& domain) {
  View view;
  view.root = value;
  int64_t rank = schedule.program->type(value).rank();
  for (int64_t i = 0; i < rank; ++i) view.from.push_back(i);
  view.start.assign(static_cast<size_t>(rank), 0);
  for (auto def = schedule.definition.find(value); def != schedule.definition.end();
       def = schedule.definition.find(view.root)) {
    const Op& op = *def->second;
    if (op.code == OpCode::kSlice) {
      view.start[static_cast<size_t>(op.attr<int64_t>("dim"))] += op.attr<int64_t>("start");
      view.slice = &op;
      ++view.slices;
    } else if (op.code == OpCode::kBroadcast) {
      std::vector<int64_t> from, start;
      for (int64_t dim : op.attr<std::vector<int64_t>>("dims")) {
        from.push_back(view.from[static_cast<size_t>(dim)]);
        start.push_back(view.start[static_cast<size_t>(dim)]);
      }
      view.from = std::move(from);
      view.start = std::move(start);
      view.plain = false;
    } else {
      break;
    }
    view.root = op.operands[0];
  }
  return view;
}

bool has_columns(const View& view, int64_t rank) { return !view.from.empty() && view.from.back() == rank - 1; }

Value* RowIndex::index(size_t dim) {
  size_t leading = domain_.size() - 1;
  if (leading == 1) return row_;
  Value*& cached = indices_[dim];
  if (cached) return cached;
  Dim inner(1);
  for (size_t d = dim + 1; d < leading; ++d) inner = inner * domain_[d];
  Value* index = inner == Dim(1) ? row_ : frame_.b.CreateUDiv(row_, frame_.size(inner));
  if (dim > 0) index = frame_.b.CreateURem(index, frame_.size(domain_[dim]));
  return cached = index;
}

std::optional<Dim> RowIndex::uniform_stride(const View& view, const std::vector<Dim>& strides) const {
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

Value* RowIndex::elements(const View& view) {
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
