#pragma once

#include "codegen/schedule.h"
#include "runtime/plan.h"

namespace weft::engine {

/// The function of a stage that is not machine code: a kernel of the runtime if there is one (packing, products over
/// rows, sums down columns, transposition, gather, scatter), else the interpreter on one thread, which is counted as a
/// fallback with the op's name. `schedule` and `op` must outlive it.
runtime::CallFunction make_call(const codegen::Schedule& schedule, const ir::Op& op);

}  // namespace weft::engine
