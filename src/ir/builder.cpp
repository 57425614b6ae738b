#include "ir/builder.h"

#include <numeric>

namespace weft::ir {

ValueId Builder::input(Type type, std::string name) {
  ValueId id = program_.new_value(std::move(type), std::move(name));
  block_.args.push_back(id);
  return id;
}

Op& Builder::append(Op op, std::vector<Type> declared) {
  for (ValueId id : op.operands)
    internal_check(id < program_.values.size(), "{}: operand {} does not exist", info(op.code).name, id);
  std::vector<Type> types = infer_types(program_, op, declared);
  op.results.clear();
  for (Type& type : types) op.results.push_back(program_.new_value(std::move(type)));
  block_.ops.push_back(std::move(op));
  return block_.ops.back();
}

ValueId Builder::emit(OpCode code, std::vector<ValueId> operands, Attrs attrs, const Type* declared) {
  std::vector<Type> types;
  if (declared) types.push_back(*declared);
  return append(Op{code, std::move(operands), {}, std::move(attrs), {}}, std::move(types)).results[0];
}

ValueId Builder::constant(double value, Type type) { return emit(OpCode::kConstant, {}, {{"value", value}}, &type); }

ValueId Builder::cast(ValueId a, DType dtype) {
  if (type(a).dtype == dtype) return a;
  Type declared{dtype, type(a).shape};
  return emit(OpCode::kCast, {a}, {}, &declared);
}

ValueId Builder::cast_loosely(ValueId a, DType dtype) {
  if (type(a).dtype == dtype) return a;
  Type declared{dtype, type(a).shape};
  return emit(OpCode::kCast, {a}, {{std::string(kExcessPrecision), true}}, &declared);
}

ValueId Builder::broadcast(ValueId a, const Shape& shape, std::vector<int64_t> dims) {
  Type declared{type(a).dtype, shape};
  return emit(OpCode::kBroadcast, {a}, {{"dims", std::move(dims)}}, &declared);
}

ValueId Builder::broadcast_trailing(ValueId a, const Shape& shape) {
  std::vector<int64_t> dims(static_cast<size_t>(type(a).rank()));
  check(dims.size() <= shape.size(), "broadcast: {} has more dims than {}", to_string(type(a)), to_string(shape));
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(shape.size() - dims.size()));
  return broadcast(a, shape, std::move(dims));
}

ValueId Builder::reshape(ValueId a, const Shape& shape) {
  Type declared{type(a).dtype, shape};
  return emit(OpCode::kReshape, {a}, {}, &declared);
}

ValueId Builder::transpose(ValueId a, std::vector<int64_t> perm) {
  return emit(OpCode::kTranspose, {a}, {{"perm", std::move(perm)}});
}

ValueId Builder::slice(ValueId a, int64_t dim, const Dim& start, const Dim& limit) {
  return emit(OpCode::kSlice, {a}, {{"dim", dim}, {"start", as_attr(start)}, {"limit", as_attr(limit)}});
}

ValueId Builder::concat(std::vector<ValueId> parts, int64_t dim) {
  return emit(OpCode::kConcat, std::move(parts), {{"dim", dim}});
}

ValueId Builder::reduce_sum(ValueId a, std::vector<int64_t> dims) {
  return emit(OpCode::kReduceSum, {a}, {{"dims", std::move(dims)}});
}

ValueId Builder::matmul(ValueId a, ValueId b, bool transpose_b) {
  Attrs attrs;
  if (transpose_b) attrs.emplace("transpose_b", true);
  return emit(OpCode::kMatmul, {a, b}, std::move(attrs));
}

std::vector<ValueId> Builder::scan(std::vector<ValueId> inits, std::vector<ValueId> xs, Dim length,
                                   const std::optional<Ragged>& ragged, bool reverse, const Step& step) {
  Block region;
  for (ValueId init : inits) region.args.push_back(program_.new_value(type(init)));
  for (ValueId x : xs) {
    check(type(x).rank() >= 1, "scan: an xs operand is {}, which has no steps", to_string(type(x)));
    region.args.push_back(program_.new_value(step_of(type(x), ragged)));
  }
  std::vector<ValueId> args = region.args;
  Builder body(program_, region);
  std::span<const ValueId> all(args);
  StepResults results = step(body, all.first(inits.size()), all.subspan(inits.size()));
  check(results.carries.size() == inits.size(), "scan: {} carries go in, but {} come out", inits.size(),
        results.carries.size());
  region.results = std::move(results.carries);
  region.results.insert(region.results.end(), results.ys.begin(), results.ys.end());

  Op op{OpCode::kScan, inits, {}, {{"carries", static_cast<int64_t>(inits.size())}, {"length", length}}, {}};
  if (reverse) op.attrs.emplace("reverse", true);
  op.operands.insert(op.operands.end(), xs.begin(), xs.end());
  if (ragged) {
    op.operands.push_back(ragged->batch_sizes);
    op.attrs.emplace("rows", ragged->rows);
    op.attrs.emplace("packed", ragged->packed);
  }
  op.regions.push_back(std::move(region));
  return append(std::move(op)).results;
}

std::vector<ValueId> Builder::cond(ValueId predicate, const Branch& yes, const Branch& no) {
  Op op{OpCode::kCond, {predicate}, {}, {}, {}};
  for (const Branch* branch : {&yes, &no}) {
    Block region;
    Builder body(program_, region);
    region.results = (*branch)(body);
    op.regions.push_back(std::move(region));
  }
  return append(std::move(op)).results;
}

std::vector<ValueId> Builder::while_loop(std::vector<ValueId> inits, const LoopPart& condition, const LoopPart& body) {
  Op op{OpCode::kWhile, std::move(inits), {}, {}, {}};
  for (const LoopPart* part : {&condition, &body}) {
    Block region;
    for (ValueId init : op.operands) region.args.push_back(program_.new_value(type(init)));
    Builder inside(program_, region);
    std::vector<ValueId> args = region.args;
    region.results = (*part)(inside, args);
    op.regions.push_back(std::move(region));
  }
  return append(std::move(op)).results;
}

}  // namespace weft::ir
