#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Dead code elimination: removes ops whose results nobody reads, and ys, xs and carries of scans (a carry that only
/// feeds itself is dead).
///
///     %a, %b, %ys, %zs = scan length T carry(%h = %h0, %k = %k0) xs(%xt = %x) { ... yield carry(%h2, %k2) ys(%y, %z) }
///     return %ys            ->  the stack %zs goes; so does %k with all that only it needs, unless %y or %h2 reads it
///
/// A program's inputs stay. Stands after every pass that leaves dead ops behind.
void dce(ir::Program& program);

}  // namespace weft::passes
