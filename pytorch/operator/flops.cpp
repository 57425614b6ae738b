#include "operator/flops.h"

#include <algorithm>

#include "ir/binder.h"

namespace weft::torch_operator {
namespace {

int64_t count(const ir::Program& program, const ir::Block& block, const ir::Bindings& symbols);

int64_t elements(const ir::Program& program, ir::ValueId id, const ir::Bindings& symbols) {
  return ir::evaluate(ir::element_count(program.type(id).shape), symbols);
}

int64_t count(const ir::Program& program, const ir::Op& op, const ir::Bindings& symbols) {
  if (ir::info(op.code).op_class == ir::OpClass::kProduct) {
    const ir::Shape& a = program.type(op.operands[0]).shape;
    int64_t total = 2 * elements(program, op.results[0], symbols);
    for (size_t dim : ir::summed_dims(op, a.size())) total *= ir::evaluate(a[dim], symbols);
    return total;
  }
  switch (op.code) {
    case ir::OpCode::kScan: {
      ir::ScanView scan(op);
      if (scan.ragged) {  // linear in a step's rows, which add up to the packed rows
        auto of_rows = [&](int64_t rows) {
          ir::Bindings step = symbols;
          step[scan.ragged->rows.name()] = rows;
          return count(program, scan.region, step);
        };
        int64_t fixed = of_rows(0);
        return ir::evaluate(scan.length, symbols) * fixed +
               ir::evaluate(scan.ragged->packed, symbols) * (of_rows(1) - fixed);
      }
      return ir::evaluate(scan.length, symbols) * count(program, scan.region, symbols);
    }
    case ir::OpCode::kCond:  // counts the dearer branch
      return std::max(count(program, op.regions[0], symbols), count(program, op.regions[1], symbols));
    case ir::OpCode::kWhile:  // counts one step: the number of steps depends on values
      return count(program, op.regions[0], symbols) + count(program, op.regions[1], symbols);
    default:
      return 0;
  }
}

int64_t count(const ir::Program& program, const ir::Block& block, const ir::Bindings& symbols) {
  int64_t total = 0;
  for (const ir::Op& op : block.ops) total += count(program, op, symbols);
  return total;
}

}  // namespace

int64_t flops(const ir::Program& program, const std::vector<std::vector<int64_t>>& sizes) {
  return count(program, program.body, ir::bind(program, sizes));
}

}  // namespace weft::torch_operator
