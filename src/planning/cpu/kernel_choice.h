#pragma once

#include "planning/schedule.h"
#include "planning/target.h"

namespace weft::planning {

/// The runtime's kernel, with its arguments, for an op that stages don't compute: packing, products and reductions of
/// dense operands, copies, rows by an index. A CallbackCall if there is no kernel for the op, its dtypes or its layout.
/// Needs the buffers of the op's operands and results.
runtime::KernelCall choose_kernel(Schedule& schedule, const ir::Op& op);

/// Which views of its operands the op's kernel can read without a copy.
OperandViews kernel_views(const ir::Program& program, const ir::Op& op);

}  // namespace weft::planning
