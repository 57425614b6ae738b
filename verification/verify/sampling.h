#pragma once

#include "verify/sequence.h"

namespace weft::verify {

/// Bounds the effect of rounding on a direction that runs on by itself for many steps. Adding up the worst case of
/// every step soon bounds nothing, since in reality errors of different signs cancel and a state forgets them. So the
/// direction runs several times more, and each time the result of every step is moved, up or down at random, by the
/// most that rounding can do there. The largest effect on the results, times a margin, is the bound. This is Monte
/// Carlo arithmetic (Parker 1997), with moves as large as the worst case, which is some ten times what rounding does.
/// The random numbers are the same in every run.
///
/// Args:
///   results: the direction's results, with bounds by the worst case. Each bound becomes the smaller of both bounds.
void tighten(const Layer& layer, size_t direction, const Precision& precision, const Sequence& input, int64_t steps,
             int64_t batch, Sequence& results);

}  // namespace weft::verify
