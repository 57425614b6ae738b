#pragma once

#include "planning/schedule.h"
#include "runtime/plan/plan.h"

namespace weft::engine {

/// The function of a stage that is neither machine code nor a kernel of the runtime: PyTorch's operator, or the
/// interpreter on one thread, counted as a fallback with the op's name. `schedule` and `op` must outlive it.
runtime::CallFunction make_callback(const planning::Schedule& schedule, const ir::Op& op);

}  // namespace weft::engine
