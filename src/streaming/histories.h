#pragma once

#include <optional>
#include <vector>

#include "ir/program.h"

namespace weft::streaming {

/// A state that holds the last `rows` rows of a value, which are contiguous: all dims before `dim` have one element. A
/// step drops the first `fresh` rows and adds as many at the end.
struct History {
  size_t dim = 0;
  int64_t rows = 0, fresh = 0;
};

/// A step whose histories the caller keeps: for such a state the step returns the new rows only.
struct StepWithHistories {
  ir::Program step;
  std::vector<std::optional<History>> histories;  ///< by state; none: the result is the next state
};

/// `step`: (states..., inputs...) -> (next states..., outputs...) without symbols. `states`: the number of states.
/// Histories of less than `least_bytes` stay ordinary states.
StepWithHistories with_histories(const ir::Program& step, size_t states, int64_t least_bytes);

}  // namespace weft::streaming
