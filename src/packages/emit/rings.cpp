// States that are windows over the past, kept as rings: a step writes the new rows only.
#include "packages/emit/emitter.h"

namespace weft::packages {

using ir::ValueId;
using llvm::Value;

namespace {

/// Rings of one kind turn together.
std::pair<int64_t, int64_t> kind_of(const Ring& ring) {
  return {ring.rows(), ring.at_front ? -ring.fresh : ring.fresh};
}

}  // namespace

/// Memory for a ring.
void Emitter::place_ring(size_t number_of_state, const Ring& ring) {
  const ValueId state = program_.body.args[number_of_state];
  std::vector<int64_t> shape = sizes(state);
  shape[ring.dim] = ring.in_memory();
  const int64_t lanes = lanes_for(state), columns = shape.back();
  Memory::Slot& slot = reserve(state, shape, (columns + lanes - 1) / lanes * lanes);
  slot.offset += ring.guard() * slot.strides[ring.dim] * size_of(dtype(state));
  Turn& turn = turns_[kind_of(ring)];
  if (turn.offset == 0) {
    turn.offset = memory_.bytes;
    memory_.bytes += std::max<int64_t>(target_.vector_bytes, 8);
  }
  slot.ring = Memory::Ring{turn.offset, ring.dim, ring.rows()};
  rings_[program_.body.results[number_of_state]] = {ring, state};
}

/// The windows as they are before the call.
void Emitter::find_windows() {
  for (auto& [kind, turn] : turns_) turn.before = nullptr;
  for (const auto& [made, ring_and_state] : rings_) {
    const auto& [ring, state] = ring_and_state;
    Turn& turn = turns_.at(kind_of(ring));
    if (turn.before == nullptr) start_turn(turn, ring);
    buffers_[state] = in_ring(state, memory_.slots.at(state), ring, turn.before);
  }
}

/// Loads where the windows of all rings of one kind begin, and computes where they begin after this call.
void Emitter::start_turn(Turn& turn, const Ring& ring) {
  Value* first =
      b_.CreateAlignedLoad(b_.getInt32Ty(), b_.CreateGEP(b_.getInt8Ty(), state_, number(turn.offset)), llvm::Align(4));
  turn.before = b_.CreateZExtOrTrunc(first, index_);
  const auto wrapped = [&](Value* row) {
    Value* less = b_.CreateSub(row, number(ring.rows()));
    return b_.CreateSelect(b_.CreateICmpUGE(row, number(ring.rows())), less, row);
  };
  // When the window moves backwards, adding all rows but those that are new keeps the number positive.
  const int64_t moved = ring.fresh * steps_;
  turn.after = wrapped(b_.CreateAdd(turn.before, number(ring.at_front ? ring.rows() - moved : moved)));
  turn.fresh = ring.at_front ? turn.after : wrapped(b_.CreateAdd(turn.before, number(ring.window)));
}

Buffer Emitter::in_ring(ValueId value, const Memory::Slot& slot, const Ring& ring, Value* row) {
  Buffer buffer = in_state(value, slot);
  const int64_t bytes = slot.strides[ring.dim] * size_of(dtype(value));
  buffer.base = b_.CreateGEP(b_.getInt8Ty(), buffer.base, b_.CreateMul(row, number(bytes)));
  buffer.step = steps_ == 1 ? 0 : ring.fresh * bytes;
  return buffer;
}

/// Writes the new rows, and their copies. Rows without a copy are written to the same place twice.
void Emitter::emit_ring(ValueId value) {
  const auto& [ring, state] = rings_.at(value);
  const Memory::Slot slot = memory_.slots.at(state);
  const Turn& turn = turns_.at(kind_of(ring));
  const int64_t rows = ring.rows();
  Value* again = turn.fresh;
  if (steps_ > 1) {  // new rows that pass the last one begin again
    Value* passes = b_.CreateICmpUGT(turn.fresh, number(rows - ring.fresh * steps_));
    again = b_.CreateSelect(passes, b_.CreateSub(turn.fresh, number(rows)), turn.fresh);
  }
  Value* has_copy = b_.CreateICmpULT(turn.fresh, number(ring.copied()));
  again = b_.CreateSelect(has_copy, b_.CreateAdd(turn.fresh, number(rows)), again);
  const Buffer to[] = {in_ring(value, slot, ring, turn.fresh), in_ring(value, slot, ring, again)};
  std::vector<Coordinate> origin(slot.strides.size());
  for (ValueId part : ring.made) {
    emit_part(part, part, to, origin);
    origin[ring.dim].offset += sizes(part)[ring.dim];
  }
  memory_.slots[value] = slot;
  // Within a call of several steps the window goes on past the last row.
  Value* first = steps_ == 1 ? turn.after : b_.CreateAdd(turn.before, number(ring.fresh));
  buffers_[value] = in_ring(value, slot, ring, first);
}

/// Stores where the windows begin, for the next step.
void Emitter::end_turns() {
  for (const auto& [kind, turn] : turns_)
    b_.CreateAlignedStore(b_.CreateZExtOrTrunc(turn.after, b_.getInt32Ty()),
                          b_.CreateGEP(b_.getInt8Ty(), state_, number(turn.offset)), llvm::Align(4));
}

}  // namespace weft::packages
