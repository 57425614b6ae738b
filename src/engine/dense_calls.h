#pragma once

#include "codegen/schedule.h"
#include "runtime/plan.h"

namespace weft::engine {

/// The kernel of the runtime for a product or reduction of dense operands of any sizes (numbers or symbols), for
/// indices (iota, size) or for integer division; empty if there is none for the op or its dtype.
runtime::CallFunction make_dense(const codegen::Schedule& schedule, const ir::Op& op);

}  // namespace weft::engine
