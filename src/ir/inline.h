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

/// Whether the callee can be inlined for these inputs. A ragged scan keeps symbols for its rows: a program that has one
/// can't be inlined where their number is a constant.
bool can_inline(const Program& callee, const Program& caller, std::span<const ValueId> inputs);

/// Appends the ops of `callee` where `builder` builds, and returns its results there. The callee's symbols become the
/// dims that `inputs` have in their place. User's error if the inputs don't fit the callee.
std::vector<ValueId> inline_program(Builder& builder, const Program& callee, std::span<const ValueId> inputs);

}  // namespace weft::ir
