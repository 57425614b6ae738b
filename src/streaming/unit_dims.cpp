#include "streaming/unit_dims.h"

namespace weft::streaming {
namespace {

/// Whether the dims of more than one element keep their order.
bool keeps_order(const ir::Shape& shape, const std::vector<int64_t>& perm) {
  int64_t last = -1;
  for (int64_t dim : perm) {
    if (shape[static_cast<size_t>(dim)] == ir::Dim(1)) continue;
    if (dim < last) return false;
    last = dim;
  }
  return true;
}

void rewrite(const ir::Program& program, ir::Block& block) {
  for (ir::Op& op : block.ops) {
    for (ir::Block& region : op.regions) rewrite(program, region);
    if (ir::elements_of(op.code) != ir::Elements::kPermuted) continue;
    if (!keeps_order(program.type(op.operands[0]).shape, op.attr<std::vector<int64_t>>("perm"))) continue;
    op.code = ir::OpCode::kReshape;
    op.attrs.erase("perm");
  }
}

}  // namespace

void reshape_unit_dims(ir::Program& program) { rewrite(program, program.body); }

}  // namespace weft::streaming
