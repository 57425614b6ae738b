#include "passes/settle.h"

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;

void settle_block(Block& block, Substitution& replaced) {
  for (Op& op : block.ops) {
    for (Block& region : op.regions) settle_block(region, replaced);
    if (op.code == OpCode::kExtern) op.attrs.erase("vjp");
    if (op.code == OpCode::kStopGradient) replaced.set(op.results[0], op.operands[0]);
  }
  std::erase_if(block.ops, [](const Op& op) { return op.code == OpCode::kStopGradient; });
}

}  // namespace

void settle(ir::Program& program) {
  Substitution replaced;
  settle_block(program.body, replaced);
  substitute(program.body, replaced);
}

}  // namespace weft::passes
