#pragma once

#include <optional>

#include "ir/program.h"

namespace weft::passes {

/// The result of an elementwise op on numbers, in double; `b` is ignored where the op has one operand. None for an op
/// whose results are not those of IEEE arithmetic. For f32 a result that is rounded once more is that of float
/// arithmetic.
std::optional<double> folded(ir::OpCode code, double a, double b);

/// The result of a comparison; none for any other op.
std::optional<bool> compared(ir::OpCode code, double a, double b);

}  // namespace weft::passes
