#pragma once

#include "ir/program.h"

namespace weft::ir {

/// Throws the user's error unless every value is defined once, before its use, and is used inside its region only;
/// arity and types follow the op table (of a scan: carries keep their type, xs and ys agree with its length); and every
/// symbol is by itself a dim of some input, since otherwise no call could bind it.
void verify(const Program& program);

/// Binds the symbols: their values, from the sizes of the inputs (`sizes[i]` are those of input i). User's error naming
/// the input, the dim and both sizes when a size contradicts the type or another input.
Bindings bind(const Program& program, const std::vector<std::vector<int64_t>>& sizes);

}  // namespace weft::ir
