#include "passes/loops/all_steps.h"

#include <algorithm>
#include <numeric>

namespace weft::passes {

using ir::Attrs;
using ir::Batching;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Shape;
using ir::Type;
using ir::ValueId;
using Dims = std::vector<int64_t>;

namespace {

/// The dims of a step as dims of the stack.
Dims shifted(const Dims& dims) {
  Dims result;
  for (int64_t dim : dims) result.push_back(dim + 1);
  return result;
}

/// The dims of a step as dims of the stack, behind the dim of the steps.
Dims shifted_behind_zero(const Dims& dims) {
  Dims result = shifted(dims);
  result.insert(result.begin(), 0);
  return result;
}

}  // namespace

bool AllSteps::is_rows(ValueId value) const { return ragged_ && has_rows(outside_.type(value), *ragged_); }

ValueId AllSteps::same(ValueId value) const {
  auto it = same_.find(value);
  return it == same_.end() ? value : it->second;
}

ValueId AllSteps::stack(ValueId value) {
  if (auto it = stacks_.find(value); it != stacks_.end()) return it->second;
  internal_check(!varies(value) && !is_rows(value), "a value of a region has no stack");
  Type type = stacked(outside_.type(value), length_);
  Dims dims(type.shape.size() - 1);
  std::iota(dims.begin(), dims.end(), 1);
  ValueId result = outside_.broadcast(same(value), type.shape, std::move(dims));
  stacks_[value] = result;
  return result;
}

ValueId AllSteps::with_type(const Op& op, std::vector<ValueId> operands, Attrs attrs) {
  const Type declared = stacked(outside_.type(op.results[0]), length_);
  return outside_.emit(op.code, std::move(operands), std::move(attrs),
                       ir::traits_of(op.code).declares ? &declared : nullptr);
}

/// A product with weights that differ from step to step becomes a batch of products, each on the rows [R, K] of a step.
ValueId AllSteps::matmul(const Op& op) {
  ValueId a = stack(op.operands[0]);
  if (!varies(op.operands[1])) return outside_.emit(op.code, {a, same(op.operands[1])}, op.attrs);
  Shape shape = outside_.type(a).shape;
  if (shape.size() != 3) {
    ir::Dim rows = ir::element_count(Shape(shape.begin() + 1, shape.end() - 1));
    a = outside_.reshape(a, {length_, rows, shape.back()});
  }
  ValueId product = outside_.emit(OpCode::kBatchMatmul, {a, stack(op.operands[1])}, op.attrs);
  Shape result = stacked(outside_.type(op.results[0]), length_).shape;
  return shape.size() == 3 ? product : outside_.reshape(product, result);
}

/// One outer product a step: a^T b on rows [R, M] and [R, N].
ValueId AllSteps::outer(const Op& op) {
  auto rows = [&](ValueId v) {
    ValueId stack = this->stack(v);
    Shape shape = outside_.type(stack).shape;
    if (shape.size() == 3) return stack;
    ir::Dim count = ir::element_count(Shape(shape.begin() + 1, shape.end() - 1));
    return outside_.reshape(stack, {length_, count, shape.back()});
  };
  ValueId a = rows(op.operands[0]);
  ValueId b = rows(op.operands[1]);
  return outside_.emit(OpCode::kBatchMatmul, {a, b}, {{"transpose_a", true}});
}

/// The rows start, start+1, ... of each step, looked up in the tensor with the op's dim in front.
ValueId AllSteps::windows(const Op& op) {
  const auto dim = op.attr<int64_t>("dim");
  const ir::Dim size = size_attr(op, "size");
  Dims to_front{dim}, back{0};  // perms: of the tensor's dims; of the dims (steps, window, others)
  for (int64_t i = 0; i < outside_.type(op.operands[0]).rank(); ++i) {
    if (i != dim) to_front.push_back(i);
    back.push_back(i == dim ? 1 : i < dim ? i + 2 : i + 1);
  }
  const Type row{DType::kI64, {size}}, all{DType::kI64, {length_, size}};
  ValueId index = outside_.emit(OpCode::kIota, {}, {{"dim", int64_t{0}}}, &row);
  index = outside_.add(outside_.broadcast(stack(op.operands[1]), all.shape, {0}),
                       outside_.broadcast(index, all.shape, {1}));
  const ValueId table = outside_.transpose(same(op.operands[0]), std::move(to_front));
  return outside_.transpose(outside_.emit(OpCode::kGather, {table, index}), std::move(back));
}

/// An op on rows becomes the same op on the packed rows. An op without rows that is the same in every step is done
/// once.
bool AllSteps::emit_ragged(const Op& op) {
  Type declared = outside_.type(op.results[0]);
  bool rows = is_rows(op.results[0]);
  if (!rows && std::ranges::any_of(op.operands, [&](ValueId v) { return varies(v); })) return false;
  if (rows) declared.shape[0] = ragged_->packed;
  std::vector<ValueId> operands;
  for (ValueId v : op.operands) operands.push_back(is_rows(v) ? stack(v) : same(v));
  ValueId result = outside_.emit(op.code, std::move(operands), op.attrs, &declared);
  (rows ? stacks_ : same_)[op.results[0]] = result;
  return true;
}

void AllSteps::emit(const Op& op) {
  if (has(op.results[0])) return;
  if (ragged_ && emit_ragged(op)) return;
  Attrs attrs = op.attrs;
  if (op.has("dim")) attrs["dim"] = op.attr<int64_t>("dim") + 1;
  stacks_[op.results[0]] = emit_by(ir::traits_of(op.code).batching, op, std::move(attrs));
}

ValueId AllSteps::emit_by(Batching rule, const Op& op, Attrs attrs) {
  auto stacks = [&] {
    std::vector<ValueId> all;
    for (ValueId v : op.operands) all.push_back(stack(v));
    return all;
  };
  switch (rule) {
    case Batching::kNone:
      break;
    case Batching::kSame:
      return with_type(op, stacks(), std::move(attrs));
    case Batching::kDims:
      attrs["dims"] = shifted(op.attr<Dims>("dims"));
      return with_type(op, stacks(), std::move(attrs));
    case Batching::kPermuted:
      attrs["perm"] = shifted_behind_zero(op.attr<Dims>("perm"));
      return with_type(op, stacks(), std::move(attrs));
    case Batching::kBroadcast: {
      const bool repeats = !varies(op.operands[0]);
      attrs["dims"] = repeats ? shifted(op.attr<Dims>("dims")) : shifted_behind_zero(op.attr<Dims>("dims"));
      return with_type(op, {repeats ? same(op.operands[0]) : stack(op.operands[0])}, std::move(attrs));
    }
    case Batching::kMatmul:
      return matmul(op);
    case Batching::kOuter:
      return outer(op);
    case Batching::kLookup:
      return with_type(op, {same(op.operands[0]), stack(op.operands[1])}, std::move(attrs));
    case Batching::kWindows:
      return windows(op);
  }
  internal_error("{}: has no form for all steps", ir::info(op.code).name);
}

}  // namespace weft::passes
