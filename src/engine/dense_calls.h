#pragma once

#include "codegen/schedule.h"
#include "runtime/plan.h"

namespace weft::engine {

/// Kernels of the runtime for products and reductions of dense operands of any sizes (numbers or symbols), for indices
/// and for integer division; empty where there is none for the op or its dtype.
runtime::CallFunction make_dense(const codegen::Schedule& schedule, const ir::Op& op);

}  // namespace weft::engine
