#pragma once

#include <vector>

#include "planning/schedule.h"

namespace weft::planning {

/// How the elements of a domain find theirs in a value's memory: dim j of the value stands at `start[j]` plus the index
/// of domain dim `from[j]`, or at `start[j]` alone where from[j] is -1.
struct View {
  ir::ValueId root = ir::kNoValue;
  std::vector<int64_t> from;
  std::vector<int64_t> start;
  int64_t slices = 0;  ///< slices on the way, and which op the last was
  const ir::Op* slice = nullptr;
  bool plain = true;  ///< nothing but slices on the way
};

/// Follows broadcasts and slices from `value`, which has the domain's shape, to memory, a constant or a register.
View resolve(const Schedule& schedule, ir::ValueId value, const ir::Shape& domain);

/// True iff the view's columns are the columns of a domain of so many dims; false: one element a row.
bool has_columns(const View& view, int64_t rank);

}  // namespace weft::planning
