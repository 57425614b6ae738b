#pragma once

#include <optional>

#include "packages/bound.h"

namespace weft::packages {

/// A state that is a window over what a step makes: the new one has the old rows but `fresh` of them, in order, and as
/// many new rows at one end of a dim. Its memory holds `rows` rows, of which the window is `window` in a row from a
/// first one on, and each of the first `window` rows again, `rows` further: a window that goes past the last row goes
/// on in the copies. A step writes new rows where the old window isn't, twice, and moves the first row; no row is
/// moved.
struct Ring {
  size_t dim = 0;
  int64_t window = 0, fresh = 0;
  bool at_front = false;          ///< new rows come before the old ones: the first row moves backwards
  std::vector<ir::ValueId> made;  ///< the new rows, in parts along the dim
  int64_t rows() const { return window + fresh; }
  int64_t in_memory() const { return rows() + window; }
};

/// The ring that a state can be. None where the new state is made in another way, where it is computed and not put
/// together, or where rows are so few that moving them is cheaper.
std::optional<Ring> ring_of(const Bound& step, size_t state);

}  // namespace weft::packages
