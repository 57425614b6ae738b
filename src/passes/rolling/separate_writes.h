#pragma once

#include <optional>

#include "ir/program.h"

namespace weft::passes {

/// A tensor that a loop fills part by part, as `y[t] = h` does, is a chain of joins, each of which is the one before
/// with some elements replaced:
///
///     %y1 = concat %h1, %after1 {dim = 0}             // %after1 = slice %y0 {dim = 0, start = 1, limit = 9}
///     %y2 = concat %before2, %h2, %after2 {dim = 0}   // of %y1: rows 0 to 1, and rows 2 to 9
///     ... and so on to %y9
/// becomes
///     %y9 = concat %h1, %h2, ..., %h9 {dim = 0}
///
/// which no longer says that a step depends on what the steps before have written. Elements that are never written stay
/// slices of %y0. A slice of a link of the chain becomes what was written there last. Links that something reads as a
/// whole, as a state that is changed in place, stay as they are.
///
/// None if there is no chain of at least three such links.
std::optional<ir::Program> separate_writes(const ir::Program& program);

}  // namespace weft::passes
