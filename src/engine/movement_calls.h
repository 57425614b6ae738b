#pragma once

#include "codegen/schedule.h"
#include "runtime/plan.h"

namespace weft::engine {

/// The call of a movement op (transpose, reverse, slice, pad, concat, broadcast, gather, scatter_add) as a copy of the
/// runtime's, which all threads share; empty for other ops and types. `schedule` and `op` must outlive it.
runtime::CallFunction make_movement(const codegen::Schedule& schedule, const ir::Op& op);

}  // namespace weft::engine
