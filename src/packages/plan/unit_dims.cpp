#include "packages/plan/unit_dims.h"

#include <algorithm>
#include <map>

#include "ir/builder.h"
#include "passes/rewrite.h"

namespace weft::packages {
namespace {

using ir::Op;
using ir::Shape;
using ir::ValueId;

/// The number of dims of one element at the end of the shape; 0 if all dims have one element.
size_t unit_dims_behind(const Shape& shape) {
  size_t count = 0;
  while (count < shape.size() && shape[shape.size() - 1 - count].constant() == 1) ++count;
  return count == shape.size() ? 0 : count;
}

Shape in_front(const Shape& shape, size_t count) {
  Shape moved = shape;
  std::ranges::rotate(moved, moved.end() - static_cast<std::ptrdiff_t>(count));
  return moved;
}

class Mover {
 public:
  explicit Mover(ir::Program& program) : program_(program), builder_(program, program.body) {}

  void run() {
    std::vector<Op> before = std::move(program_.body.ops);
    program_.body.ops.clear();
    program_.body.ops.reserve(4 * before.size());
    for (Op& op : before) {
      passes::substitute(op, with_);
      const size_t count =
          ir::info(op.code).op_class == ir::OpClass::kElementwise && op.results.size() == 1 && op.regions.empty()
              ? unit_dims_behind(program_.type(op.results[0]).shape)
              : 0;
      if (count == 0)
        keep(std::move(op));
      else
        move(op, count);
    }
    for (ValueId& result : program_.body.results) result = with_(result);
  }

 private:
  void keep(Op op) {
    for (ValueId result : op.results) makers_[result] = program_.body.ops.size();
    program_.body.ops.push_back(std::move(op));
  }

  const Op* maker(ValueId value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? nullptr : &program_.body.ops[found->second];
  }

  void move(const Op& op, size_t count) {
    const ir::Type type = program_.type(op.results[0]);
    Op moved = op;
    for (ValueId& operand : moved.operands) operand = moved_operand(operand, count);
    moved.results = {program_.new_value({type.dtype, in_front(type.shape, count)})};
    const ValueId made = moved.results[0];
    keep(std::move(moved));
    with_.set(op.results[0], reshaped(made, type.shape));
  }

  ValueId moved_operand(ValueId operand, size_t count) {
    const ir::Type type = program_.type(operand);
    const Shape shape = in_front(type.shape, count);
    const Op* op = maker(operand);
    if (op != nullptr && ir::is_constant(op->code)) {
      Op constant = *op;
      constant.results = {program_.new_value({type.dtype, shape})};
      const ValueId made = constant.results[0];
      keep(std::move(constant));
      return made;
    }
    if (op != nullptr && ir::is_repeated(op->code)) {
      std::vector<int64_t> dims = op->attr<std::vector<int64_t>>("dims");
      const auto kept = static_cast<int64_t>(type.shape.size() - count);
      if (std::ranges::all_of(dims, [&](int64_t dim) { return dim < kept; })) {
        for (int64_t& dim : dims) dim += static_cast<int64_t>(count);
        return indexed(builder_.broadcast(op->operands[0], shape, std::move(dims)));
      }
    }
    return reshaped(operand, shape);
  }

  /// The value in another shape; of a reshape what was reshaped.
  ValueId reshaped(ValueId value, const Shape& shape) {
    for (const Op* op = maker(value); op != nullptr && ir::is_alias(op->code); op = maker(value))
      value = op->operands[0];
    return program_.type(value).shape == shape ? value : indexed(builder_.reshape(value, shape));
  }

  ValueId indexed(ValueId made) {
    makers_[made] = program_.body.ops.size() - 1;
    return made;
  }

  ir::Program& program_;
  ir::Builder builder_;
  passes::Substitution with_;
  std::map<ValueId, size_t> makers_;  // numbers of ops, by what they compute
};

}  // namespace

void put_unit_dims_in_front(ir::Program& program) { Mover(program).run(); }

}  // namespace weft::packages
