#pragma once

#include "ir/program.h"

namespace weft::packages {

/// Makes a program without regions. The steps of a scan come one after the other. Both sides of a cond are computed,
/// and each of its results is selected from the two. Sizes must be numbers. User's error naming a loop that is too long
/// or whose length is not known (while, ragged scans), or a cond of which a side may fail.
void straighten(ir::Program& program);

}  // namespace weft::packages
