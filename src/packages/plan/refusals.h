#pragma once

#include <string_view>

#include "packages/plan/bound.h"

namespace weft::packages {

/// User's error naming the first op, or type, of the step for which packages have no machine code, and what could be
/// used instead.
void refuse_what_has_no_form(const Bound& step);

/// The name of a function in the block that packages compute for arguments up to a size only, beyond which the result
/// is NaN (emit/math.h); empty if there is none.
std::string_view narrow_function(const ir::Program& program, const ir::Block& block);

}  // namespace weft::packages
