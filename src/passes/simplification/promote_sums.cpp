#include "passes/simplification/promote_sums.h"

#include "ir/builder.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::Type;
using ir::ValueId;

/// Products and sums. A maximum needs no wider type, since it is one of its operands.
bool accumulates(OpCode code) { return ir::traits_of(code).sums; }

void promote_block(Program& program, Block& block) {
  Block out;
  ir::Builder builder(program, out);
  for (Op& op : block.ops) {
    for (Block& region : op.regions) promote_block(program, region);
    if (!accumulates(op.code) || !is_half(program.type(op.results[0]).dtype)) {
      out.ops.push_back(std::move(op));
      continue;
    }
    for (ValueId& operand : op.operands)
      if (is_half(program.type(operand).dtype)) operand = builder.cast(operand, DType::kF32);
    Type wide = program.type(op.results[0]);
    wide.dtype = DType::kF32;
    ValueId result = program.new_value(std::move(wide));
    Op rounding{OpCode::kCast, {result}, {op.results[0]}, {}, {}};
    op.results[0] = result;
    out.ops.push_back(std::move(op));
    out.ops.push_back(std::move(rounding));
  }
  block.ops = std::move(out.ops);
}

}  // namespace

void promote_sums(Program& program) { promote_block(program, program.body); }

}  // namespace weft::passes
