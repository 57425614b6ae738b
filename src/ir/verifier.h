#pragma once

#include "ir/program.h"

namespace weft::ir {

/// Throws the user's error unless every value is defined once, before its use, and is used inside its region only;
/// arity and types follow the op table (of a scan: carries keep their type, xs and ys agree with its length); a result
/// that takes an input's memory has its type, and no other takes the same; and every symbol is by itself a dim of some
/// input, since otherwise no call could bind it.
void verify(const Program& program);

}  // namespace weft::ir
