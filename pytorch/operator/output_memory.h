#pragma once

#include "operator/aten.h"

namespace weft::torch_operator {

/// A dense tensor on the CPU whose content is arbitrary, for a result of a program. A large tensor has memory of the
/// engine's arena, which gets the memory back when the last tensor on it is freed. So results and residuals of a
/// training step lie where those of the step before did, and cause no page faults. The tensor can be resized like any
/// other. Where there is no memory, raises the error that at::empty raises.
at::Tensor empty_output(at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace weft::torch_operator
