#include "passes/differentiation/drop_derivatives.h"

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Block;
using ir::Op;

/// Whether the op has no effect once the program is differentiated.
bool is_settled(const Op& op) { return ir::traits_of(op.code).marks != ir::Marks::kNothing; }

void forget_derivatives(Block& block) {
  for (Op& op : block.ops) {
    for (Block& region : op.regions) forget_derivatives(region);
    if (ir::traits_of(op.code).calls_out) op.attrs.erase("vjp");
  }
}

}  // namespace

void drop_derivatives(ir::Program& program) {
  forget_derivatives(program.body);
  replace_by_values(program, is_settled);
}

}  // namespace weft::passes
