#include "engine/callbacks.h"

#include "engine/engine.h"
#include "engine/extern_callback.h"
#include "interpreter/interpreter.h"

namespace weft::engine {
namespace {

using ir::Op;
using ir::OpCode;
using ir::ValueId;
using runtime::CallContext;

/// Runs an op through the interpreter.
class Interpreted {
 public:
  Interpreted(const planning::Schedule& schedule, const Op& op)
      : schedule_(schedule), program_(*schedule.program), op_(op) {
    reason_ = std::string(info(op.code).name);
    if (op.code == OpCode::kScan) reason_ += ": " + schedule.rules.decision(op).reason;
    reason_ = ir::traits_of(op.code).calls_out ? "" : "interpreted " + reason_;
  }

  bool operator()(const CallContext& context, std::string&) const {
    if (context.thread != 0) return true;
    if (!reason_.empty()) count_fallback(reason_);
    ir::Bindings bindings;
    for (size_t i = 0; i < schedule_.plan.symbols.size(); ++i) bindings[schedule_.plan.symbols[i]] = context.symbols[i];
    Memory memory{context, bindings, {}};
    std::vector<interpreter::View> operands;
    for (ValueId operand : op_.operands) operands.push_back(view(memory, operand));
    std::vector<std::vector<int64_t>> sizes;
    for (ValueId result : op_.results) sizes.push_back(interpreter::sizes_of(program_.type(result).shape, bindings));
    std::vector<interpreter::MutableView> results;
    for (size_t i = 0; i < op_.results.size(); ++i)
      results.push_back(
          {program_.type(op_.results[i]).dtype, sizes[i], context.buffers[schedule_.buffer.at(op_.results[i])]});
    interpreter::evaluate_op(program_, op_, operands, results, bindings, [&](ValueId id) { return view(memory, id); });
    return true;
  }

 private:
  struct Memory {
    const CallContext& context;
    const ir::Bindings& bindings;
    std::map<ValueId, interpreter::Array> computed;  // views without memory; of values with memory the sizes alone
  };

  interpreter::View view(Memory& memory, ValueId value) const {
    auto found = memory.computed.find(value);
    if (found == memory.computed.end()) found = memory.computed.emplace(value, materialise(memory, value)).first;
    auto buffer = schedule_.buffer.find(value);
    const void* data =
        buffer != schedule_.buffer.end() ? memory.context.buffers[buffer->second] : found->second.bytes.data();
    return {found->second.dtype, found->second.sizes, data};
  }

  interpreter::Array materialise(Memory& memory, ValueId value) const {
    const ir::Type& type = program_.type(value);
    std::vector<int64_t> sizes = interpreter::sizes_of(type.shape, memory.bindings);
    if (schedule_.buffer.contains(value)) {
      interpreter::Array named;
      named.dtype = type.dtype;
      named.sizes = std::move(sizes);
      return named;
    }
    const Op& op = *schedule_.definition.at(value);
    interpreter::Array result(type.dtype, std::move(sizes));
    std::vector<interpreter::View> operands;
    for (ValueId operand : op.operands) operands.push_back(view(memory, operand));
    interpreter::MutableView out = result.view();
    interpreter::evaluate_op(program_, op, operands, {&out, 1}, memory.bindings);
    return result;
  }

  const planning::Schedule& schedule_;
  const ir::Program& program_;
  const Op& op_;
  std::string reason_;
};

}  // namespace

runtime::CallFunction make_callback(const planning::Schedule& schedule, const Op& op) {
  if (runtime::CallFunction call = make_extern_callback(schedule, op)) return call;
  return Interpreted(schedule, op);
}

}  // namespace weft::engine
