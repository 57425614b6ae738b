// Rows of a table replaced, or added to, by an index: dynamic_update, scatter and scatter_add.
#include <algorithm>

#include "codegen/half.h"
#include "packages/emit/emitter.h"
#include "packages/plan/written_rows.h"

namespace weft::packages {

using ir::Op;
using ir::ValueId;
using llvm::Value;

/// Whether the op is a new state that is the old one but for some rows, and nobody reads it in this step: then only the
/// rows are written, behind everything that reads the old state and may fail.
bool Emitter::is_changed_in_place(const Op& op) const {
  const auto& results = program_.body.results;
  const auto result = std::ranges::find(results, op.results[0]);
  const auto state = static_cast<size_t>(result - results.begin());
  const bool replaces = written_rows(op.code) == WrittenRows::kReplaced ||
                        (ir::traits_of(op.code).updated == 0 && op.attr<int64_t>("dim") == 0);
  if (plan_.steps > 1 || !replaces) return false;
  if (state >= step_.states() || op.operands[0] != program_.body.args[state]) return false;
  return std::ranges::count(results, *result) == 1 && std::ranges::none_of(program_.body.ops, [&](const Op& other) {
           return std::ranges::find(other.operands, *result) != other.operands.end();
         });
}

/// The rows of such a state, kept in memory of their own until the step can't fail any longer, and where they go.
void Emitter::emit_change(const Op& op) {
  const ValueId made = op.results[0], rows = op.operands[written_rows(op.code) == WrittenRows::kReplaced ? 2 : 1];
  const std::vector<int64_t> shape = sizes(rows);
  const Buffer buffer = in_state(made, reserve(made, shape, shape.empty() ? 1 : shape.back()));
  buffers_[made] = buffer;
  emit_part(rows, rows, {&buffer, 1}, std::vector<Coordinate>(shape.size()));
  known_.clear();
  computed_.clear();
  const int64_t all = sizes(made)[0];
  if (written_rows(op.code) == WrittenRows::kReplaced) {
    Updates updates{op.operands[1], rows, {}, buffer, {}};
    updates.index_at = kept(updates.index, updates.taken);
    over_updates(updates, all, [](const Coordinate&, const Buffer&) {});
    changes_[made] = [this, updates, all](const Buffer& state) { replace_rows(updates, state, all); };
    return;
  }
  Value* first = checked_index(get(op.operands[2], {{}, -1, 1}), all - shape[0]);
  changes_[made] = [this, rows, buffer, first](const Buffer& state) {
    copy(buffer, from_row(state, {first, 0}), sizes(rows), dtype(rows));
  };
}

/// A value's elements in order, in memory that nobody else gives back.
Buffer Emitter::kept(ValueId value, std::vector<Memory::Slot>& taken) {
  const std::vector<int64_t> shape = sizes(value);
  Buffer buffer = dense(nullptr, value);
  taken.push_back(space(ir::element_count(program_.type(value).shape).constant() * size_of(dtype(value))));
  buffer.base = b_.CreateGEP(b_.getInt8Ty(), state_, number(taken.back().offset));
  emit_part(value, value, {&buffer, 1}, std::vector<Coordinate>(shape.size()));
  return buffer;
}

/// The operands of scatter and scatter_add behind the table, where they are in memory or else in memory of their own.
Emitter::Updates Emitter::updates_of(const Op& op) {
  const size_t first = op.operands.size() - 2;
  Updates updates{op.operands[first], op.operands[first + 1], {}, {}, {}};
  const auto find = [&](ValueId value) {
    const auto buffer = buffers_.find(value);
    return buffer != buffers_.end() ? buffer->second : kept(value, updates.taken);
  };
  updates.index_at = find(updates.index);
  updates.rows_at = find(updates.rows);
  return updates;
}

void Emitter::over_updates(const Updates& updates, int64_t rows,
                           const std::function<void(const Coordinate& row, const Buffer& update)>& body) {
  const std::vector<int64_t> shape = sizes(updates.index);
  if (is_empty(shape)) return;
  std::vector<Coordinate> at(shape.size());
  loops(shape, 0, at, [&] {
    Value* index = load(updates.index_at, {at, -1, 1}, shape);
    const Buffer& all = updates.rows_at;
    std::vector<Coordinate> begin(all.strides.size());
    std::ranges::copy(at, begin.begin());
    body({checked_index(index, rows - 1), 0},
         {address(all, begin),
          {all.strides.begin() + static_cast<std::ptrdiff_t>(at.size()), all.strides.end()},
          all.dtype});
  });
}

/// Of equal indices the last one's row stays.
void Emitter::replace_rows(const Updates& updates, const Buffer& table, int64_t rows) {
  std::vector<int64_t> row = sizes(updates.rows);
  row.erase(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(sizes(updates.index).size()));
  over_updates(updates, rows, [&](const Coordinate& place, const Buffer& update) {
    copy(update, row_at(table, place), row, dtype(updates.rows));
  });
}

void Emitter::emit_scatter(const Op& op) {
  const ValueId whole = op.results[0];
  const std::vector<int64_t> shape = sizes(whole);
  const std::vector<Coordinate> origin(shape.size());
  const Updates updates = updates_of(op);
  const Buffer result = in_state(whole, reserve(whole, shape.back()));
  Buffer sums = result;
  std::optional<Memory::Slot> of_sums;
  if (written_rows(op.code) == WrittenRows::kAdded && is_half(result.dtype)) {  // which is rounded once
    of_sums = space(ir::element_count(program_.type(whole).shape).constant() * size_of(DType::kF32));
    sums = dense(b_.CreateGEP(b_.getInt8Ty(), state_, number(of_sums->offset)), whole);
    sums.dtype = DType::kF32;
  }
  emit_part(written_rows(op.code) == WrittenRows::kReplaced ? op.operands[0] : ir::kNoValue, whole, {&sums, 1}, origin);
  known_.clear();
  computed_.clear();
  if (written_rows(op.code) == WrittenRows::kReplaced)
    replace_rows(updates, result, shape[0]);
  else
    add_updates(op, updates, sums);
  if (of_sums) {
    over_pieces(shape, size_of(DType::kF32), [&](const std::vector<Coordinate>& at, unsigned lanes) {
      Value* sum = load(sums, {at, static_cast<int64_t>(shape.size()) - 1, lanes}, shape);
      store(result, at, codegen::emit_round_to_half(b_, sum, result.dtype));
    });
    memory_.give_back(of_sums->offset, of_sums->bytes);
  }
  for (const Memory::Slot& slot : updates.taken) memory_.give_back(slot.offset, slot.bytes);
  buffers_[whole] = result;
}

/// Adds updates in their order.
void Emitter::add_updates(const Op& op, const Updates& updates, const Buffer& sums) {
  const std::vector<int64_t> shape = sizes(op.results[0]);
  const std::vector<int64_t> row(shape.begin() + 1, shape.end());
  over_updates(updates, shape[0], [&](const Coordinate& place, const Buffer& update) {
    const Buffer to = row_at(sums, place);
    over_pieces(row, std::max<int64_t>(size_of(sums.dtype), 4), [&](const std::vector<Coordinate>& at, unsigned lanes) {
      const Place here{at, static_cast<int64_t>(row.size()) - 1, lanes};
      store(to, at, add(load(to, here, row), load(update, here, row)));
    });
  });
}

/// The buffer from a row of its first dim on.
Buffer Emitter::from_row(const Buffer& buffer, const Coordinate& row) {
  std::vector<Coordinate> at(buffer.strides.size());
  at[0] = row;
  Buffer from = buffer;
  from.base = address(buffer, at);
  return from;
}

/// One row, which has the other dims.
Buffer Emitter::row_at(const Buffer& table, const Coordinate& row) {
  Buffer one = from_row(table, row);
  one.strides.erase(one.strides.begin());
  return one;
}

}  // namespace weft::packages
