#include "importer/aten_rows.h"

#include <algorithm>

namespace weft::importer {

using ir::Dim;
using ir::Op;
using ir::OpCode;
using ir::ValueId;

namespace {

/// The op that makes a value; null for an input.
const Op* maker(const AtenCall& call, ValueId value) {
  const auto& ops = call.builder.block().ops;
  const auto found =
      std::find_if(ops.rbegin(), ops.rend(), [&](const Op& op) { return std::ranges::count(op.results, value) > 0; });
  return found == ops.rend() ? nullptr : &*found;
}

/// The value that is repeated in every element of a value; none if there is none.
std::optional<ValueId> repeated(const AtenCall& call, ValueId value) {
  const Op* op = maker(call, value);
  if (op == nullptr || op->code != OpCode::kBroadcast || call.type(op->operands[0]).rank() != 0) return {};
  return op->operands[0];
}

bool counts_up(const AtenCall& call, ValueId value) {
  const Op* op = maker(call, value);
  return op != nullptr && op->code == OpCode::kIota;
}

}  // namespace

std::optional<ValueId> range_start(const AtenCall& call, ValueId index) {
  const ir::Type type = call.type(index);
  if (type.rank() != 1 || !(type.shape[0] - Dim(1)).is_never_negative()) return {};
  if (type.shape[0] == Dim(1)) return call.cast(call.builder.reshape(index, {}), DType::kI64);
  const Op* sum = maker(call, index);
  if (sum == nullptr || sum->code != OpCode::kAdd) return {};
  for (size_t i : {0, 1}) {
    if (!counts_up(call, sum->operands[1 - i])) continue;
    if (const auto start = repeated(call, sum->operands[i])) return call.cast(*start, DType::kI64);
  }
  return {};
}

ValueId rows_at(const AtenCall& call, ValueId x, int64_t dim, ValueId start, const Dim& count) {
  return call.builder.emit(OpCode::kDynamicSlice, {x, start}, {{"dim", dim}, {"size", ir::as_attr(count)}});
}

ValueId with_rows_at(const AtenCall& call, ValueId x, int64_t dim, ValueId start, ValueId update) {
  return call.builder.emit(OpCode::kDynamicUpdate, {x, update, start}, {{"dim", dim}});
}

}  // namespace weft::importer
