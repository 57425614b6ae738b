#pragma once

#include <optional>

#include "planning/schedule.h"

namespace weft::planning {

/// The runtime's copy for a stage that is one copy or concatenation of few numbers in memory, and of constant size:
/// gradients of biases, say, which are slices of one sum. Machine code for it would take longer to compile than
/// thousands of such copies take to run. Needs the buffers of what the stage reads and writes.
std::optional<runtime::CopyCall> small_copy(Schedule& schedule, const Stage& stage);

}  // namespace weft::planning
