#pragma once

#include "ir/program.h"

namespace weft::streaming {

/// Running sums, products, maxima and minima of a sequence of symbolic length, which are calls of PyTorch, become
/// scans.
///
///   %y = extern %x {call = "aten.cumsum.default(%0, 0, None)"} : f32[T,8]
///
/// becomes
///
///   %last, %y = scan length T carry(%s = %zero) xs(%xt = %x) { %n = add %s, %xt  yield carry(%n) ys(%n) }
///
/// for f64. Sums of f32 have a second carry, of what additions have rounded off.
void running_totals(ir::Program& program);

}  // namespace weft::streaming
