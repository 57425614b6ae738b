#pragma once

#include "ir/program.h"

namespace weft::ir {

/// Throws the user's error unless every value is defined once, before its use, and is used inside its region only;
/// arity and types follow the op table (of a scan: carries keep their type, xs and ys agree with its length); and every
/// symbol is by itself a dim of some input, since otherwise no call could bind it.
void verify(const Program& program);

}  // namespace weft::ir
