#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace weft::ir {

/// What a program's symbols are elsewhere.
using SymbolSizes = std::map<std::string, Dim>;

/// The dim or type with its symbols replaced. User's error naming a symbol that is not in `sizes`.
Dim substitute(const Dim& dim, const SymbolSizes& sizes);
Type substitute(const Type& type, const SymbolSizes& sizes);

/// The ops of `callee` appended where `builder` builds, its symbols being what the inputs have in their place; its
/// results there. User's error if the inputs don't fit it.
std::vector<ValueId> inline_program(Builder& builder, const Program& callee, std::span<const ValueId> inputs);

}  // namespace weft::ir
