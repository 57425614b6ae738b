#pragma once

#include "operator/aten.h"

namespace weft::torch_operator {

/// A dense tensor on the CPU whose content is arbitrary, for a result of a program. A large one has memory of the
/// engine's arena, which gets it back when the last tensor on it is freed: results and residuals of a training step
/// then lie where those of the step before did, and cause no page faults. As resizable as any tensor. An error as
/// at::empty's where there is no memory.
at::Tensor empty_output(at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace weft::torch_operator
