#pragma once

#include <functional>

#include "passes/rewrite.h"

namespace weft::passes {

/// Writes the step of a scan: `map` has what its region reads, and is given what it defines.
using WriteStep = std::function<void(const ir::Block& region, Substitution& map)>;

/// Writes the steps of a scan of constant length, and not a ragged one, one after the other: slices of its xs, as many
/// steps, and for each stack a concat. `map` is given the scan's results.
void write_out(ir::Builder& builder, const ir::Op& scan, Substitution& map, const WriteStep& step);

}  // namespace weft::passes
