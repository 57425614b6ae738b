#pragma once

#include <map>
#include <vector>

#include "ir/program.h"

namespace weft::planning {

struct Schedule;

/// Who reads the panels of a pack.
struct PackUses {
  /// Whether a run may leave the pack out: only products of stages read it, and these find the weights where the pack
  /// would have, since nothing is written over them (as over a donated input) before the last product. A read of the
  /// panels is then a read of the weights too.
  bool may_be_left_out = true;
  std::vector<ir::Dim> rows;   ///< that are multiplied by the panels each time that they are made: a sum of terms
  std::vector<ir::Dim> times;  ///< how often products go over the panels meanwhile: a sum of terms
};

/// Of each pack, by its result. Needs the definitions of the schedule.
std::map<ir::ValueId, PackUses> pack_uses(const Schedule& schedule);

/// Where the weights of a pack lie: row-major in the memory of `root`, from its element `skip` on, rows `ld` apart.
struct PackSource {
  ir::ValueId root;
  int64_t skip, ld;
};
PackSource source_of(const Schedule& schedule, const ir::Op& pack);

/// The pack whose panels these are if a run may leave it out, else null.
const ir::Op* pack_that_may_be_left_out(const Schedule& schedule, ir::ValueId panels);

}  // namespace weft::planning
