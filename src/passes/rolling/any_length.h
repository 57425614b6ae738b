#pragma once

#include <optional>

#include "ir/program.h"

namespace weft::passes {

/// Two programs that were traced of one function at two lengths, and rolled, as one for any length: each size, bound of
/// a slice or number of steps that differs becomes a multiple of the symbol plus a number, which is what the two tell.
/// None if the programs differ in anything else, or if their types don't fit then.
///
/// Two lengths bear any such number out, so that the result says nothing of others: to know that, compare it with what
/// comes of a third.
std::optional<ir::Program> any_length(const ir::Program& program, int64_t length, const ir::Program& other,
                                      int64_t other_length);

}  // namespace weft::passes
