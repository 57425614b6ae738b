#pragma once

#include "ir/program.h"

namespace weft::testing {

/// The program with numbers for its symbols.
ir::Program with_sizes(const ir::Program& program, const ir::Bindings& bindings);

/// The program without scans: the ops of each step one after the other, as a tracer sees a Python loop. Lengths must be
/// constant, and at least 1.
ir::Program unrolled(const ir::Program& program);

/// The number of scans, nested ones included.
int count_scans(const ir::Block& block);

}  // namespace weft::testing
