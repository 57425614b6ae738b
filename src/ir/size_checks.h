#pragma once

#include <vector>

#include "ir/program.h"

namespace weft::ir {

/// The sizes that must not be negative at a call but are for some values of symbols: of values and loops, of a slice's
/// start, range and rest, of what a pad adds. Sorted.
std::vector<Dim> sizes_to_check(const Program& program);

}  // namespace weft::ir
