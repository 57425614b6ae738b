#pragma once

#include "verify/sequence.h"

namespace weft::verify {

/// What rounding can make of a direction that runs on by itself for many steps. The worst case of every step, one after
/// the other, soon bounds nothing: errors of different signs cancel, and a state forgets them. So the direction is run
/// some times more with every step's result moved by the most that rounding can do there, up or down at random, and
/// what that makes of the results, times a margin, is the bound: Monte Carlo arithmetic (Parker 1997), with moves that
/// are as large as the worst case, which is some ten times what rounding does. The same numbers in every run.
///
/// Args:
///   results: the direction's, with bounds by the worst case; each becomes the smaller of the two.
void tighten(const Layer& layer, const Direction& direction, const Precision& precision, const Sequence& input,
             int64_t steps, int64_t batch, Sequence& results);

}  // namespace weft::verify
