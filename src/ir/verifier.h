#pragma once

#include "ir/program.h"

namespace weft::ir {

/// Throws the user's error unless: every value is defined once and before its use and does not escape its region, arity
/// and types follow the op table, a scan's carries have one type in and out, ys and xs agree with its length, and every
/// symbol occurs alone as a dim of some input (else it could not be bound at a call).
void verify(const Program& program);

/// Values of all symbols from the inputs' sizes (one vector of sizes an input). User's error naming the input, the dim
/// and both sizes when a size contradicts the type or another input's.
Bindings bind(const Program& program, const std::vector<std::vector<int64_t>>& sizes);

}  // namespace weft::ir
