#include "planning/excess_precision.h"

#include "passes/rewrite.h"

namespace weft::planning {
namespace {

using ir::Op;
using ir::ValueId;

bool casts(const ir::Program& program, const Op& op, DType to) {
  return ir::is_conversion(op.code) && program.type(op.results[0]).dtype == to;
}

/// The values that some op other than a cast to f32 reads.
std::set<ValueId> read_rounded(const ir::Program& program, const ir::Block& block) {
  std::set<ValueId> all;
  for (const Op& op : block.ops)
    if (!casts(program, op, DType::kF32)) passes::for_each_use(op, [&](ValueId value) { all.insert(value); });
  return all;
}

bool rounds_loosely(const ir::Program& program, const Op& op, DType to) {
  return casts(program, op, to) && op.attr_or<bool>(ir::kExcessPrecision, false);
}

/// The values that the block returns, or that some op other than a loose cast to bf16 reads.
std::set<ValueId> read_as_they_are(const ir::Program& program, const ir::Block& block) {
  std::set<ValueId> all(block.results.begin(), block.results.end());
  for (const Op& op : block.ops)
    if (!rounds_loosely(program, op, DType::kBF16)) passes::for_each_use(op, [&](ValueId value) { all.insert(value); });
  return all;
}

}  // namespace

void mark_unrounded(const ir::Program& program, const ir::Block& block, std::vector<Stage>& stages) {
  const std::set<ValueId> needed = read_rounded(program, block), exact = read_as_they_are(program, block);
  for (Stage& stage : stages)
    for (const Op* op : stage.ops) {
      for (ValueId result : op->results)
        if (program.type(result).dtype == DType::kF32 && !exact.contains(result)) stage.coarse.insert(result);
      if (!ir::is_conversion(op->code) || !op->attr_or<bool>(ir::kExcessPrecision, false)) continue;
      const ValueId result = op->results[0];
      if (!is_half(program.type(result).dtype) || program.type(op->operands[0]).dtype != DType::kF32) continue;
      if (!needed.contains(result)) stage.unrounded.insert(result);
    }
}

}  // namespace weft::planning
