#pragma once

#include "ir/program.h"

namespace weft::packages {

/// What an op does to the rows of a table that an index names.
enum class WrittenRows : uint8_t { kNone, kReplaced, kAdded };

WrittenRows written_rows(ir::OpCode code);

}  // namespace weft::packages
