#pragma once

#include <map>

#include "ir/program.h"
#include "planning/lowering.h"

namespace weft::planning {

/// A program and how each of its ops is lowered: what is known before stages have buffers. Points into `program`.
struct LoweredProgram {
  const ir::Program* program = nullptr;
  LoweringRules rules;  ///< how each op is lowered, and for which target
  std::map<ir::ValueId, const ir::Op*> definition;
};

/// The value whose memory or register `value` is read from: follows views. Any other value gives itself.
ir::ValueId viewed(const LoweredProgram& lowered, ir::ValueId value);

/// The value in whose memory the value lies: follows views and reshapes.
ir::ValueId memory_of(const LoweredProgram& lowered, ir::ValueId value);

}  // namespace weft::planning
