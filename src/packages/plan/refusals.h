#pragma once

#include "packages/plan/bound.h"

namespace weft::packages {

/// User's error naming the first op, or type, of the step for which packages have no machine code, and what could be
/// used instead.
void refuse_what_has_no_form(const Bound& step);

}  // namespace weft::packages
