#pragma once

#include <cstddef>
#include <vector>

#include "ir/program.h"

namespace weft::passes {

/// Whether all floating results of a program are zero if its inputs from `first` on are, whatever finite numbers the
/// others hold:
///
///     program @clip(%x: f32[B], %g: f32[B]) {           // first = 1: yes
///       %low = constant {value = -1.0} : f32[B]
///       %high = constant {value = 1.0} : f32[B]
///       %a = maximum %g, %low : f32[B]
///       %b = minimum %a, %high : f32[B]
///       %c = mul %b, %x : f32[B]
///       return %c
///     }
///
/// False if that can't be shown. It matters for derivatives that the user wrote. Where no gradient arrives, autograd
/// doesn't run the derivative, but a program runs it with a gradient of zero. The two are the same only if the
/// derivative then gives zero.
bool vanishes(const ir::Program& program, size_t first);

/// Whether all floating results of a program are linear in its inputs from `first` on: without a summand of their own.
/// A linear derivative may be computed once for a sum of gradients, or for each gradient.
bool is_linear(const ir::Program& program, size_t first);

/// The program with its `absent` inputs zero. A value that is linear in these inputs alone becomes zero, whatever it is
/// multiplied by. So where no gradient arrives, a derivative adds nothing even if its other factor is infinite or NaN.
/// That is what autograd does, which doesn't compute the derivative there. The inputs stay.
ir::Program without_cotangents(const ir::Program& program, const std::vector<bool>& absent);

}  // namespace weft::passes
