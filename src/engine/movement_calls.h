#pragma once

#include "codegen/schedule.h"
#include "runtime/plan.h"

namespace weft::engine {

/// The call of a movement op (transpose, reverse, slice, pad, concat, broadcast, gather, scatter_add) by the runtime's
/// copies, shared by all threads; empty for an op or type that they don't do. `schedule` and `op` must outlive it.
runtime::CallFunction make_movement(const codegen::Schedule& schedule, const ir::Op& op);

}  // namespace weft::engine
