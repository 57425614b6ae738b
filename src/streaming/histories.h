#pragma once

#include <optional>
#include <vector>

#include "ir/program.h"

namespace weft::streaming {

/// A state that is the last `rows` rows of something, along a dim before which all dims have one element, so that it
/// lies in one piece: a step drops the first `fresh` of them and adds as many at the end.
struct History {
  size_t dim = 0;
  int64_t rows = 0, fresh = 0;
};

/// A step whose histories are kept by its caller: the result of such a state is its new rows alone.
struct StepWithHistories {
  ir::Program step;
  std::vector<std::optional<History>> histories;  ///< by state; none: the result is the next state
};

/// `step`: (states..., inputs...) -> (next states..., outputs...) without symbols, with so many states. Histories of
/// less than `least_bytes` stay as they are.
StepWithHistories with_histories(const ir::Program& step, size_t states, int64_t least_bytes);

}  // namespace weft::streaming
