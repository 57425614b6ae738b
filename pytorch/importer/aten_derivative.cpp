#include "importer/aten_derivative.h"

#include <fmt/format.h>

#include "ir/text/printer.h"

namespace weft::importer {

using ir::ValueId;

namespace {

/// The type with a symbol of its own for each dim that is no number. An input's dim can't be an expression such as 2*T.
ir::Type of_any_size(ir::Type type) {
  for (size_t i = 0; i < type.shape.size(); ++i)
    if (!type.shape[i].is_constant()) type.shape[i] = ir::Dim::symbol(fmt::format("N{}", i));
  return type;
}

}  // namespace

ValueId like(ir::Builder& b, double value, ValueId x) { return b.constant(value, ir::Type(b.type(x))); }

ValueId with_derivative(const AtenCall& call, const std::vector<ValueId>& inputs, ValueId value,
                        const Derivative& derivative) {
  const ir::Type type = of_any_size(call.type(value));
  ir::Program program;
  program.name = "derivative";
  ir::Builder builder(program, program.body);
  std::vector<ValueId> arguments;
  for (ValueId input : inputs) {
    check(call.type(input) == call.type(value), "{}: an input of {} beside a result of {}", call.op,
          ir::to_string(call.type(input)), ir::to_string(call.type(value)));
    arguments.push_back(builder.input(type));
  }
  builder.input(type);  // the result
  const ValueId cotangent = builder.input(type);
  builder.ret(derivative(builder, arguments, cotangent));
  ir::Op op{ir::OpCode::kCustomVjp,
            inputs,
            {},
            {{"vjp", ir::print(program, /*canonical=*/true)},
             {"inputs", static_cast<int64_t>(inputs.size())},
             {"linear", true}},
            {}};
  op.operands.push_back(value);
  return call.builder.append(std::move(op)).results[0];
}

ValueId with_slope(const AtenCall& call, ValueId x, ValueId value,
                   const std::function<ValueId(ir::Builder&, ValueId x)>& slope) {
  const auto derivative = [&](ir::Builder& b, std::span<const ValueId> inputs, ValueId cotangent) {
    return std::vector<ValueId>{b.mul(cotangent, slope(b, inputs[0]))};
  };
  return with_derivative(call, {x}, value, derivative);
}

ValueId as_if_it_were(const AtenCall& call, ValueId x, ValueId value) {
  return with_derivative(call, {x}, value, [](ir::Builder&, std::span<const ValueId>, ValueId cotangent) {
    return std::vector<ValueId>{cotangent};
  });
}

}  // namespace weft::importer
