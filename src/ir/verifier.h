#pragma once

#include "ir/program.h"

namespace weft::ir {

/// Throws the user's error unless
///
/// - every value is defined once, before its use, and is used inside its region only;
/// - arity and types follow the op table (carries of a scan keep their type, xs and ys agree with its length);
/// - a result that takes an input's memory has that input's type, and no other result takes the same input;
/// - every symbol is by itself a dim of some input, since otherwise no call could bind it.
void verify(const Program& program);

}  // namespace weft::ir
