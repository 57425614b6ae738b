#pragma once

#include "operator/aten.h"

namespace weft::programs {

/// A copy of the tensor, without a gradient: the operation weft::stop_gradient. Unlike aten::detach it is no view:
/// functionalisation makes a view again after a change of its base, and so would stop the gradient again.
at::Tensor stop_gradient(const at::Tensor& tensor);

}  // namespace weft::programs
