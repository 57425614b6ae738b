#pragma once

#include "ir/program.h"

namespace weft::passes {

/// Removes what nobody reads: ops, and of a scan its ys, its xs, and carries that only feed themselves.
///
///     %a, %b, %ys, %zs = scan length T carry(%h = %h0, %k = %k0) xs(%xt = %x) { ... yield carry(%h2, %k2) ys(%y, %z) }
///     return %ys            ->  the stack %zs goes; so does %k with all that only it needs, unless %y or %h2 reads it
///
/// A program's inputs stay. Stands after every pass that leaves something unread behind.
void dce(ir::Program& program);

}  // namespace weft::passes
