#pragma once

#include "planning/schedule.h"
#include "runtime/plan/plan.h"

namespace weft::engine {

/// The function of a stage that is an extern op whose operands and results all have buffers. It prepares the call when
/// it is run for the first time. Null for other ops, which make_callback serves. `op` must outlive it.
runtime::CallFunction make_extern_callback(const planning::Schedule& schedule, const ir::Op& op);

}  // namespace weft::engine
