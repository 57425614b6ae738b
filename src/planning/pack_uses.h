#pragma once

#include <map>
#include <vector>

#include "ir/program.h"

namespace weft::planning {

struct Schedule;

/// Who reads the panels of a pack.
struct PackUses {
  /// Whether a run may leave the pack out, so that products read the weights instead of panels. That is so if only
  /// products of stages read the panels, and nothing overwrites the weights (as a donated input) before the last
  /// product.
  bool may_be_left_out = true;
  std::vector<ir::Dim> rows;   ///< the rows multiplied each time that the panels are made: a sum of terms
  std::vector<ir::Dim> times;  ///< how often products read the panels after they are made: a sum of terms
};

/// The uses of each pack, by the pack's result. Needs the schedule's definitions.
std::map<ir::ValueId, PackUses> pack_uses(const Schedule& schedule);

/// Where the weights of a pack lie: row-major in the memory of `root`, from its element `skip` on, rows `ld` apart.
struct PackSource {
  ir::ValueId root;
  int64_t skip, ld;
};
PackSource source_of(const Schedule& schedule, const ir::Op& pack);

/// The pack that makes these panels, if a run may leave it out; else null.
const ir::Op* pack_that_may_be_left_out(const Schedule& schedule, ir::ValueId panels);

}  // namespace weft::planning
