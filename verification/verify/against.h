#pragma once

#include "verify/bounded.h"

namespace weft::verify {

/// A difference against its bound: over 1 is more than rounding explains.
double against(double computed, double recorded, double bound);

/// The bound of a number that was computed with this error, and of what the computation here rounds itself.
double bound_of(double error, const Precision& precision);

/// Widens a recorded state, which the next step read: a half precision may have kept more bits of it.
void forgive_storing(Values& state, const Precision& precision);

}  // namespace weft::verify
