#pragma once

#include <optional>

#include "packages/plan/bound.h"

namespace weft::packages {

/// A state kept as a ring: a window over values that the steps compute. The new state has all but `fresh` of the old
/// rows, in order, and `fresh` new rows at one end of a dim. The ring has `rows` rows. The window is `window`
/// neighbouring rows of the ring, and a step moves only the index of its first row. The first `copied` rows have
/// copies, `rows` rows further in memory, so that a window that passes the last row continues in the copies. A step
/// writes each new row, and its copy if the row has one, outside of the old window.
///
/// A call may be of `steps` steps at once. The new rows of all its steps are neighbours. Where some of them pass the
/// last row, all of them are copied `rows` rows back: some to the first rows, the others to a guard in front of the
/// first row, which nobody reads.
struct Ring {
  size_t dim = 0;
  int64_t window = 0, fresh = 0, steps = 1;
  bool at_front = false;          ///< new rows come before the old ones: the first row moves backwards
  std::vector<ir::ValueId> made;  ///< the new rows of a step, in parts along the dim
  int64_t rows() const { return window + (steps == 1 ? 1 : 2) * fresh * steps; }
  int64_t copied() const { return steps == 1 ? window : window + fresh * steps; }
  int64_t guard() const { return steps == 1 ? 0 : fresh * steps; }
  /// New rows may begin at the last one that has a copy.
  int64_t in_memory() const { return guard() + rows() + copied() + guard(); }
};

/// The ring that a state can be, where calls are of one step, and of `steps` steps at once. None if the new state isn't
/// such a window, if it is computed and not concatenated, or if the window is so short that moving its rows is cheaper.
std::optional<Ring> ring_of(const Bound& step, size_t state, int64_t steps);

}  // namespace weft::packages
