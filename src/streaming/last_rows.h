#pragma once

#include "ir/program.h"

namespace weft::streaming {

/// What picks the last row by its number takes it as a slice, which says so by itself:
///
///   %n = size {of = dim(T)}
///   %last = add %n, %minus_one
///   %row = gather %x, %last
///
/// becomes `slice %x {dim = 0, start = dim(T-1), limit = dim(T)}`. `x[:, -1]` is such an op where T isn't known.
void last_rows(ir::Program& program);

}  // namespace weft::streaming
