#pragma once

#include "ir/program.h"

namespace weft::packages {

/// A program without regions: the steps of a scan one after the other, and both sides of a cond, of which each result
/// is selected. Sizes must be numbers. User's error naming a loop that is too long or whose length is not known (while,
/// ragged scans), and a cond of which a side may fail, since both are computed.
void straighten(ir::Program& program);

}  // namespace weft::packages
