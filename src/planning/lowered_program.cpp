#include "planning/lowered_program.h"

namespace weft::planning {

using ir::Op;
using ir::ValueId;

ValueId viewed(const LoweredProgram& lowered, ValueId value) {
  for (auto def = lowered.definition.find(value); def != lowered.definition.end();
       def = lowered.definition.find(value)) {
    const Op& op = *def->second;
    if (lowered.rules.of(op) != Lowering::kView || op.operands.empty()) break;
    value = op.operands[0];
  }
  return value;
}

ValueId memory_of(const LoweredProgram& lowered, ValueId value) {
  for (;;) {
    value = viewed(lowered, value);
    auto made = lowered.definition.find(value);
    if (made == lowered.definition.end() || !ir::is_alias(made->second->code)) return value;
    value = made->second->operands[0];
  }
}

}  // namespace weft::planning
