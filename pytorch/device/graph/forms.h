#pragma once

#include <vector>

#include "device/graph/graph.h"
#include "device/kernels/operators.h"

namespace weft::device {

/// The form of a call, which is found again at the next such call of this thread. `arguments` are in a Form's order.
FormRef form_of(const Operator& op, std::vector<c10::IValue> arguments, const Operands& operands, Results results);

}  // namespace weft::device
