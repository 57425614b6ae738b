#pragma once

#include <optional>

#include "packages/plan/bound.h"

namespace weft::packages {

/// A state that is a window over values that steps compute, kept as a ring. The new state has all but `fresh` of the
/// old rows, in order, and `fresh` new rows at one end of a dim. Memory holds `rows` rows, of which the window takes
/// `window`, from a first one on. The first `copied` rows have copies, `rows` rows further, so that a window that
/// passes the last row continues in the copies. A step writes each new row twice, where the old window isn't, and moves
/// the index of the first row. No row is moved.
///
/// A call may be of `steps` steps at once. Its new rows are neighbours: those that pass the last row are copied to the
/// first rows, together with those before, for which there is a guard of rows that nobody reads in front.
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
