// States that are windows over the past, kept as rings: a step writes the new rows only.
#include "packages/emit/rings.h"

#include <algorithm>

#include "packages/emit/emitter.h"

namespace weft::packages {
namespace {

using ir::Op;
using ir::ValueId;
using llvm::Value;

/// With fewer rows than this for each new row, moving the rows costs no more than finding the first row.
constexpr int64_t kLeast = 4;

/// Whether the value is the slice first..last of the state along this dim.
bool is_slice_of(const Bound& step, ValueId value, ValueId state, int64_t dim, int64_t first, int64_t last) {
  const Op* op = step.op_of(value);
  return op != nullptr && ir::is_range(op->code) && op->operands[0] == state && op->attr<int64_t>("dim") == dim &&
         op->attr<int64_t>("start") == first &&
         sizes_of(step.program(), value)[static_cast<size_t>(dim)] == last - first;
}

}  // namespace

std::optional<Ring> ring_of(const Bound& step, size_t state) {
  const ir::Program& program = step.program();
  const ValueId old = program.body.args[state], made = program.body.results[state];
  const Op* op = step.op_of(made);
  if (op == nullptr || !ir::is_join(op->code) || op->operands.size() < 2) return std::nullopt;
  const int64_t dim = op->attr<int64_t>("dim");
  const std::vector<int64_t> sizes = sizes_of(program, old);
  if (std::ranges::find(sizes, 0) != sizes.end()) return std::nullopt;
  Ring ring;
  ring.dim = static_cast<size_t>(dim);
  ring.window = sizes[ring.dim];
  for (const bool at_front : {false, true}) {
    const ValueId kept = at_front ? op->operands.back() : op->operands.front();
    const int64_t fresh = ring.window - sizes_of(program, kept)[ring.dim];
    const int64_t first = at_front ? 0 : fresh;
    if (fresh <= 0 || !is_slice_of(step, kept, old, dim, first, first + ring.window - fresh)) continue;
    // A block of new rows goes past no end if all are of one size.
    if (ring.window % fresh != 0 || ring.window < kLeast * fresh) continue;
    ring.fresh = fresh;
    ring.at_front = at_front;
    ring.made.assign(op->operands.begin() + (at_front ? 0 : 1), op->operands.end() - (at_front ? 1 : 0));
    return ring;
  }
  return std::nullopt;
}

/// Memory for a ring, and the window as it is before the step.
void Emitter::place_ring(size_t number_of_state, const Ring& ring) {
  const ValueId state = program_.body.args[number_of_state];
  std::vector<int64_t> shape = sizes(state);
  shape[ring.dim] = ring.in_memory();
  const int64_t lanes = lanes_for(state), columns = shape.back();
  Memory::Slot& slot = reserve(state, shape, (columns + lanes - 1) / lanes * lanes);
  Turn& turn = turns_[{ring.rows(), ring.at_front ? -ring.fresh : ring.fresh}];
  if (turn.before == nullptr) start_turn(turn, ring);
  slot.ring = Memory::Ring{turn.offset, ring.dim, ring.rows()};
  buffers_[state] = in_ring(state, slot, turn.before);
  rings_[program_.body.results[number_of_state]] = {ring, state};
}

/// Loads where the windows of all rings of one kind begin, and computes where they begin after this step.
void Emitter::start_turn(Turn& turn, const Ring& ring) {
  turn.offset = memory_.bytes;
  memory_.bytes += std::max<int64_t>(target_.vector_bytes, 8);
  Value* first =
      b_.CreateAlignedLoad(b_.getInt32Ty(), b_.CreateGEP(b_.getInt8Ty(), state_, number(turn.offset)), llvm::Align(4));
  turn.before = b_.CreateZExtOrTrunc(first, index_);
  const auto wrapped = [&](Value* row) {
    Value* less = b_.CreateSub(row, number(ring.rows()));
    return b_.CreateSelect(b_.CreateICmpUGE(row, number(ring.rows())), less, row);
  };
  // When the window moves backwards, adding all rows but `fresh` keeps the number positive.
  turn.after = wrapped(b_.CreateAdd(turn.before, number(ring.at_front ? ring.window : ring.fresh)));
  turn.fresh = ring.at_front ? turn.after : wrapped(b_.CreateAdd(turn.before, number(ring.window)));
}

Buffer Emitter::in_ring(ValueId value, const Memory::Slot& slot, Value* row) {
  Buffer buffer = in_state(value, slot);
  Value* bytes = b_.CreateMul(row, number(slot.strides[slot.ring->dim] * size_of(dtype(value))));
  buffer.base = b_.CreateGEP(b_.getInt8Ty(), buffer.base, bytes);
  return buffer;
}

/// Writes the new rows, and their copies. Rows without a copy are written to the same place twice.
void Emitter::emit_ring(ValueId value) {
  const auto& [ring, state] = rings_.at(value);
  const Memory::Slot slot = memory_.slots.at(state);
  const Turn& turn = turns_.at({ring.rows(), ring.at_front ? -ring.fresh : ring.fresh});
  Value* again = b_.CreateAdd(turn.fresh, number(ring.rows()));
  again = b_.CreateSelect(b_.CreateICmpULT(turn.fresh, number(ring.window)), again, turn.fresh);
  const Buffer to[] = {in_ring(value, slot, turn.fresh), in_ring(value, slot, again)};
  std::vector<Coordinate> origin(slot.strides.size());
  for (ValueId part : ring.made) {
    emit_part(part, part, to, origin);
    origin[ring.dim].offset += sizes(part)[ring.dim];
  }
  memory_.slots[value] = slot;
  buffers_[value] = in_ring(value, slot, turn.after);
}

/// Stores where the windows begin, for the next step.
void Emitter::end_turns() {
  for (const auto& [kind, turn] : turns_)
    b_.CreateAlignedStore(b_.CreateZExtOrTrunc(turn.after, b_.getInt32Ty()),
                          b_.CreateGEP(b_.getInt8Ty(), state_, number(turn.offset)), llvm::Align(4));
}

}  // namespace weft::packages
