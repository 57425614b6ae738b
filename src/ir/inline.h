#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace weft::ir {

/// For each symbol of a program, the dim that stands for it in another program.
using SymbolSizes = std::map<std::string, Dim>;

/// The dim or type with its symbols replaced. User's error naming a symbol that is not in `sizes`.
Dim substitute(const Dim& dim, const SymbolSizes& sizes);
Type substitute(const Type& type, const SymbolSizes& sizes);

/// Appends the ops of `callee` where `builder` builds, and returns its results there. The callee's symbols become the
/// dims that `inputs` have in their place. User's error if the inputs don't fit the callee.
std::vector<ValueId> inline_program(Builder& builder, const Program& callee, std::span<const ValueId> inputs);

}  // namespace weft::ir
