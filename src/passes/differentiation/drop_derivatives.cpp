#include "passes/differentiation/drop_derivatives.h"

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::OpCode;

/// Whether the op has done all that it is for once the program is differentiated.
bool is_settled(const Op& op) { return op.code == OpCode::kStopGradient || op.code == OpCode::kCustomVjp; }

void settle_block(Block& block, Substitution& replaced) {
  for (Op& op : block.ops) {
    for (Block& region : op.regions) settle_block(region, replaced);
    if (op.code == OpCode::kExtern) op.attrs.erase("vjp");
    if (!is_settled(op)) continue;
    // The results of a custom_vjp are its last operands.
    const size_t skip = op.operands.size() - op.results.size();
    for (size_t i = 0; i < op.results.size(); ++i) replaced.set(op.results[i], op.operands[skip + i]);
  }
  std::erase_if(block.ops, is_settled);
}

}  // namespace

void drop_derivatives(ir::Program& program) {
  Substitution replaced;
  settle_block(program.body, replaced);
  substitute(program.body, replaced);
}

}  // namespace weft::passes
