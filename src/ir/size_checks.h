#pragma once

#include <vector>

#include "ir/program.h"

namespace weft::ir {

/// What must not be negative at a call but is for some values of symbols: sizes of values and loops, the start of a
/// slice, what it takes and what it leaves, what a pad adds. Sorted.
std::vector<Dim> sizes_to_check(const Program& program);

}  // namespace weft::ir
