#pragma once

#include "verify/bounded.h"

namespace weft::verify {

/// A difference against its bound: over 1 is more than rounding explains.
double against(double computed, double recorded, double bound);

/// The bound of a number that was computed with this error, and of what the computation here rounds itself.
double bound_of(double error, const Precision& precision);

/// Widens the error of a recorded state: with half precision the next step may have read more bits of the state than
/// were recorded.
void forgive_storing(Values& state, const Precision& precision);

}  // namespace weft::verify
