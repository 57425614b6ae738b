#pragma once

#include "ir/program.h"

namespace weft::ir {

/// Throws the user's error unless: every value is defined once and before its use and does not escape its region, arity
/// and types follow the op table, a scan's carries have one type in and out, ys and xs agree with its length, and every
/// symbol occurs alone as a dim of some input (else it could not be bound at a call).
void verify(const Program& program);

}  // namespace weft::ir
