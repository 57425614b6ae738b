#pragma once

#include "ir/program.h"

namespace weft::streaming {

/// The last row of a stack of carries is the last carry, which a stream has after each chunk, and not a step that is
/// counted from the end of the sequence:
///
///   %h, %hs = scan length T carry(...) { ... yield carry(%n) ys(%n) }
///   %last = slice %hs {dim = 0, start = dim(T-1), limit = dim(T)}
///
/// becomes a reshape of %h. A Python loop that returns its last state beside all states is rolled up so.
void last_carries(ir::Program& program);

}  // namespace weft::streaming
