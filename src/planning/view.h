#pragma once

#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// The addressing of a value from a domain: which element of the memory of `root` an element of the domain reads. The
/// index of dim j of `root` is `start[j]` plus the index of domain dim `from[j]`, or `start[j]` alone if from[j] is -1.
struct View {
  ir::ValueId root = ir::kNoValue;
  std::vector<int64_t> from;
  std::vector<int64_t> start;
  int64_t slices = 0;             ///< the number of slices that were followed,
  const ir::Op* slice = nullptr;  ///< and the last of them
  bool plain = true;              ///< only slices were followed
};

/// Follows broadcasts and slices from `value`, which has the domain's shape, to a value in memory, a constant or a
/// register.
View resolve(const Schedule& schedule, ir::ValueId value, const ir::Shape& domain);

/// True iff the view's last dim follows the last dim of a domain of rank `rank`; else it is one element a row.
bool has_columns(const View& view, int64_t rank);

}  // namespace weft::planning
