#include "packages/plan/rings.h"

#include <algorithm>

namespace weft::packages {
namespace {

using ir::Op;
using ir::ValueId;

/// With fewer rows than this for each new row, moving the rows costs no more than finding the first row, if a call is
/// one step.
constexpr int64_t kLeast = 4;

/// Whether the value is the slice first..last of the state along this dim.
bool is_slice_of(const Bound& step, ValueId value, ValueId state, int64_t dim, int64_t first, int64_t last) {
  const Op* op = step.op_of(value);
  return op != nullptr && ir::is_range(op->code) && op->operands[0] == state && op->attr<int64_t>("dim") == dim &&
         op->attr<int64_t>("start") == first &&
         sizes_of(step.program(), value)[static_cast<size_t>(dim)] == last - first;
}

}  // namespace

std::optional<Ring> ring_of(const Bound& step, size_t state, int64_t steps) {
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
    if (ring.window % fresh != 0 || (steps == 1 && ring.window < kLeast * fresh)) continue;
    ring.fresh = fresh;
    ring.steps = steps;
    ring.at_front = at_front;
    ring.made.assign(op->operands.begin() + (at_front ? 0 : 1), op->operands.end() - (at_front ? 1 : 0));
    return ring;
  }
  return std::nullopt;
}

}  // namespace weft::packages
