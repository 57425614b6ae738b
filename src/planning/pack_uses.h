#pragma once

#include <map>
#include <vector>

#include "ir/program.h"
#include "planning/lowered_program.h"

namespace weft::planning {

/// Who reads the panels of a pack.
struct PackUses {
  /// Whether a run may leave the pack out, so that products read the weights instead of panels. That is so if only
  /// products of stages read the panels, and nothing overwrites the weights (as a donated input) before the last
  /// product.
  bool may_be_left_out = true;
  std::vector<ir::Dim> rows;   ///< the rows multiplied each time that the panels are made: a sum of terms
  std::vector<ir::Dim> times;  ///< how often products read the panels after they are made: a sum of terms
};

/// By the pack's result.
std::map<ir::ValueId, PackUses> pack_uses(const LoweredProgram& lowered);

/// Where the weights of a pack lie: row-major in the memory of `root`, from its element `skip` on, rows `ld` apart.
struct PackSource {
  ir::ValueId root;
  int64_t skip, ld;
};
PackSource source_of(const LoweredProgram& lowered, const ir::Op& pack);

}  // namespace weft::planning
