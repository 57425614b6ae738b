#pragma once

#include <functional>
#include <span>
#include <vector>

#include "importer/aten_ops.h"

namespace weft::importer {

/// A constant, of the type of x.
ir::ValueId like(ir::Builder& b, double value, ir::ValueId x);

/// Computes a cotangent for each input, from the inputs and the cotangent of the value.
using Derivative =
    std::function<std::vector<ir::ValueId>(ir::Builder&, std::span<const ir::ValueId> inputs, ir::ValueId cotangent)>;

/// The value, differentiated by PyTorch's formula (tools/autograd/derivatives.yaml) instead of the chain rule over its
/// ops. The two differ where the chain rule multiplies 0 by infinity, at the end of a domain or at a tie. The inputs
/// are of the value's type. The derivative must be linear in the cotangent.
ir::ValueId with_derivative(const AtenCall& call, const std::vector<ir::ValueId>& inputs, ir::ValueId value,
                            const Derivative& derivative);

/// The same for one input; `slope` is the factor of its derivative.
ir::ValueId with_slope(const AtenCall& call, ir::ValueId x, ir::ValueId value,
                       const std::function<ir::ValueId(ir::Builder&, ir::ValueId x)>& slope);

/// `value`, with x's derivative: its cotangent goes to x unchanged.
ir::ValueId as_if_it_were(const AtenCall& call, ir::ValueId x, ir::ValueId value);

}  // namespace weft::importer
