#include "packages/plan/refusals.h"

namespace weft::packages {
namespace {

using ir::OpCode;

/// Why there is no machine code for an op, or nothing if there is.
std::string why_not(const ir::Program& program, const ir::Op& op) {
  switch (op.code) {
    case OpCode::kExtern:
      return "it runs in PyTorch, which is not there where a package runs; write it with operations that Weft compiles";
    case OpCode::kCustomVjp:
      return "a derivative of one's own should be gone by now";
    default:
      break;
  }
  return {};
}

bool has_registers(DType dtype) { return dtype != DType::kI8 && dtype != DType::kU8 && dtype != DType::kI16; }

}  // namespace

void refuse_what_has_no_form(const Bound& step) {
  const ir::Program& program = step.program();
  for (const ir::Op& op : program.body.ops) {
    if (step.is_constant(op.results[0])) continue;
    const std::string why = why_not(program, op);
    const std::string call = op.code == OpCode::kExtern ? " (" + op.attr<std::string>("call") + ")" : "";
    check(why.empty(), "weft.package: the step has the operation '{}'{}, which can't be packaged: {}",
          ir::info(op.code).name, call, why);
    for (ir::ValueId value : op.results)
      check(has_registers(program.type(value).dtype),
            "weft.package: the step computes a value of type {} (by '{}'), which packages have no registers for: use "
            "int32, int64 or a floating type",
            ir::to_string(program.type(value)), ir::info(op.code).name);
  }
  for (size_t i = 0; i < step.states() + step.inputs(); ++i) {
    const ir::Type& type = program.type(program.body.args[i]);
    check(has_registers(type.dtype),
          "weft.package: {} {} of the step is {}: it must be of a floating type, int32, int64 or bool",
          i < step.states() ? "state" : "input", i < step.states() ? i : i - step.states(), ir::to_string(type));
  }
}

}  // namespace weft::packages
