#pragma once

#include "operator/aten.h"

namespace weft::programs {

/// A copy of the tensor, without a gradient: the operation weft::stop_gradient. Unlike aten::detach it is no view,
/// which functionalisation would make again, and so stop again, after a change of what it is a view of.
at::Tensor stop_gradient(const at::Tensor& tensor);

}  // namespace weft::programs
