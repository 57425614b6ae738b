#include "passes/batch.h"

#include <algorithm>
#include <set>

#include "passes/rewrite.h"

namespace weft::passes {
namespace {

using ir::Op;
using ir::OpClass;
using ir::OpCode;
using ir::Program;
using ir::ValueId;

bool leads_with(const Program& program, ValueId value, const ir::Dim& batch) {
  const ir::Shape& shape = program.type(value).shape;
  return !shape.empty() && shape[0] == batch;
}

bool names_dim_zero(const std::vector<int64_t>& dims) { return std::ranges::find(dims, 0) != dims.end(); }

/// Whether the op leaves row i of its result a function of row i of its operands (and of values without rows).
/// `rowless` holds the region's values without rows: constants, and what else is made of nothing but them.
bool keeps_rows(const Program& program, const Op& op, const std::set<ValueId>& rowless,
                const std::set<ValueId>& inside) {
  auto has_rows = [&](ValueId v) { return inside.contains(v) && !rowless.contains(v); };
  switch (op.code) {
    case OpCode::kBroadcast: {
      const auto& dims = op.attr<std::vector<int64_t>>("dims");
      return !has_rows(op.operands[0]) || (!dims.empty() && dims[0] == 0);
    }
    case OpCode::kSlice:
    case OpCode::kPad:
    case OpCode::kConcat:
    case OpCode::kReverse:
      return op.attr<int64_t>("dim") != 0;
    case OpCode::kReduceSum:
    case OpCode::kReduceMax:
      return !names_dim_zero(op.attr<std::vector<int64_t>>("dims"));
    case OpCode::kMatmul:
    case OpCode::kMatmulPacked:
      return program.type(op.operands[0]).rank() >= 2 && !has_rows(op.operands[1]);
    default:
      return info(op.code).op_class == OpClass::kElementwise;
  }
}

}  // namespace

bool keeps_rows(const Program& program, const Op& op, const ir::Ragged& ragged) {
  auto rows = [&](ValueId v) { return has_rows(program.type(v), ragged); };
  bool reads_rows = false;
  for_each_use(op, [&](ValueId v) { reads_rows = reads_rows || rows(v); });
  if (std::ranges::none_of(op.results, rows)) return !reads_rows;
  switch (op.code) {
    // The rows can only lead, so these leave them there.
    case OpCode::kConstant:
    case OpCode::kIota:
    case OpCode::kBroadcast:
    case OpCode::kReshape:
    case OpCode::kTranspose:
    case OpCode::kReduceSum:
    case OpCode::kReduceMax:
      return true;
    case OpCode::kSlice:
    case OpCode::kPad:
    case OpCode::kConcat:
    case OpCode::kReverse:
      return op.attr<int64_t>("dim") != 0;
    case OpCode::kMatmul:
    case OpCode::kMatmulPacked:
      return rows(op.operands[0]) && program.type(op.operands[0]).rank() >= 2 && !rows(op.operands[1]);
    case OpCode::kBatchMatmul:
      return program.type(op.operands[0]).rank() >= 3 && rows(op.operands[0]) && rows(op.operands[1]);
    case OpCode::kGather:
      return rows(op.operands[1]) && !rows(op.operands[0]);
    default:
      return info(op.code).op_class == OpClass::kElementwise;
  }
}

bool is_batched(const Program& program, const Op& scan) {
  ir::ScanView view(scan);
  if (view.carry_args.empty() && view.x_args.empty()) return false;
  ValueId first = view.carry_args.empty() ? view.x_args[0] : view.carry_args[0];
  if (program.type(first).rank() == 0) return false;
  const ir::Dim& batch = view.ragged ? view.ragged->rows : program.type(first).shape[0];
  std::set<ValueId> inside(view.region.args.begin(), view.region.args.end());
  for (ValueId arg : view.region.args)
    if (!leads_with(program, arg, batch)) return false;
  std::set<ValueId> rowless;
  for (const Op& op : view.region.ops) {
    for (ValueId result : op.results) inside.insert(result);
    if (op.code == OpCode::kConstant) {
      for (ValueId result : op.results) rowless.insert(result);
      continue;
    }
    if (!keeps_rows(program, op, rowless, inside)) return false;
    for (ValueId result : op.results)
      if (!leads_with(program, result, batch)) return false;
  }
  return std::ranges::all_of(view.region.results, [&](ValueId v) { return leads_with(program, v, batch); });
}

bool is_narrow(const ir::Program& program, const ir::Op& scan) {
  constexpr int64_t kLanes = 16;
  const ir::Block& region = scan.regions[0];
  if (region.args.empty()) return false;
  const ir::Shape& shape = program.type(region.args[0]).shape;
  if (shape.empty()) return false;
  const ir::Dim row = element_count(ir::Shape(shape.begin() + 1, shape.end()));
  if (!row.is_constant() || row.constant() >= kLanes) return false;
  auto has_shape = [&](ValueId v) { return program.type(v).shape == shape; };
  return std::ranges::all_of(region.args, has_shape) && std::ranges::all_of(region.ops, [&](const Op& op) {
           if (op.code == OpCode::kConstant) return true;
           const bool spread = op.code == OpCode::kBroadcast && program.type(op.operands[0]).rank() == 0;
           const bool same = ir::info(op.code).op_class == ir::OpClass::kElementwise;
           return (spread || (same && std::ranges::all_of(op.operands, has_shape))) && has_shape(op.results[0]);
         });
}

}  // namespace weft::passes
