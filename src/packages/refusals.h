#pragma once

#include "packages/bound.h"

namespace weft::packages {

/// User's error naming the first op of the step, or type, that packages have no machine code for: what it is, and what
/// would do instead.
void refuse_what_has_no_form(const Bound& step);

}  // namespace weft::packages
