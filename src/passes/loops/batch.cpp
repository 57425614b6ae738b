#include "passes/loops/batch.h"

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

/// Whether row i of the op's result depends on row i only of those operands that have rows. `has_rows(v)`: v has one
/// row for each row of the loop.
template <typename F>
bool keeps_each_row(const Program& program, const Op& op, F&& has_rows) {
  auto rank = [&](size_t i) { return program.type(op.operands[i]).rank(); };
  switch (ir::traits_of(op.code).rows) {
    case ir::Rows::kNever:
      return false;
    case ir::Rows::kAlways:
    case ir::Rows::kFresh:
    case ir::Rows::kReshaped:
      return true;
    case ir::Rows::kBroadcast: {
      const auto& dims = op.attr<std::vector<int64_t>>("dims");
      return !has_rows(op.operands[0]) || (!dims.empty() && dims[0] == 0);
    }
    case ir::Rows::kDim:
      return op.attr<int64_t>("dim") != 0;
    case ir::Rows::kDims:
      return !names_dim_zero(op.attr<std::vector<int64_t>>("dims"));
    case ir::Rows::kProduct:
      return rank(0) >= 2 && !has_rows(op.operands[1]);
    case ir::Rows::kBatchProduct:
      return has_rows(op.operands[0]) && has_rows(op.operands[1]) && rank(0) >= 3;
    case ir::Rows::kLookup:
      return has_rows(op.operands[1]) && !has_rows(op.operands[0]);
  }
  return false;
}

/// Whether the op has machine code in a loop over rows (planning/fusion/fuse.h).
bool has_batched_code(OpCode code) {
  switch (ir::traits_of(code).rows) {
    case ir::Rows::kAlways:
    case ir::Rows::kBroadcast:
    case ir::Rows::kDim:
    case ir::Rows::kDims:
    case ir::Rows::kProduct:
      return true;
    case ir::Rows::kReshaped:  // same memory: a row of the result is the same row of the operand
      return ir::traits_of(code).codegen == ir::Codegen::kAlias;
    default:
      return false;
  }
}

}  // namespace

bool keeps_rows(const Program& program, const Op& op, const ir::Ragged& ragged) {
  auto rows = [&](ValueId v) { return has_rows(program.type(v), ragged); };
  bool reads_rows = false;
  for_each_use(op, [&](ValueId v) { reads_rows = reads_rows || rows(v); });
  if (std::ranges::none_of(op.results, rows)) return !reads_rows;
  return keeps_each_row(program, op, rows);
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
  std::set<ValueId> rowless;  // constants
  auto has_rows = [&](ValueId v) { return inside.contains(v) && !rowless.contains(v); };
  for (const Op& op : view.region.ops) {
    for (ValueId result : op.results) inside.insert(result);
    if (op.code == OpCode::kConstant) {
      for (ValueId result : op.results) rowless.insert(result);
      continue;
    }
    if (!has_batched_code(op.code) || !keeps_each_row(program, op, has_rows)) return false;
    for (ValueId result : op.results)
      if (!leads_with(program, result, batch)) return false;
  }
  return std::ranges::all_of(view.region.results, [&](ValueId v) { return leads_with(program, v, batch); });
}

bool has_short_rows(const ir::Program& program, const ir::Op& scan, int64_t lanes) {
  const ir::Block& region = scan.regions[0];
  if (region.args.empty()) return false;
  const ir::Shape& shape = program.type(region.args[0]).shape;
  if (shape.empty()) return false;
  const ir::Dim row = element_count(ir::Shape(shape.begin() + 1, shape.end()));
  if (!row.is_constant() || row.constant() >= lanes) return false;
  auto has_shape = [&](ValueId v) { return program.type(v).shape == shape; };
  return std::ranges::all_of(region.args, has_shape) && std::ranges::all_of(region.ops, [&](const Op& op) {
           if (op.code == OpCode::kConstant) return true;
           const bool spread = op.code == OpCode::kBroadcast && program.type(op.operands[0]).rank() == 0;
           const bool same = ir::info(op.code).op_class == ir::OpClass::kElementwise;
           return (spread || (same && std::ranges::all_of(op.operands, has_shape))) && has_shape(op.results[0]);
         });
}

}  // namespace weft::passes
