#include "importer/region.h"

#include <algorithm>

#include "importer/aten_ops.h"
#include "importer/compose.h"
#include "ir/inline.h"

namespace weft::importer {

ir::Type make_type(std::string_view dtype, const std::vector<Size>& sizes) {
  std::optional<DType> known = dtype_named(dtype);
  check(known.has_value(), "no dtype is named '{}'", dtype);
  ir::Type type{*known, {}};
  for (const auto& [factor, symbols] : sizes) {
    ir::Dim dim(factor);
    for (const std::string& symbol : symbols) dim = dim * ir::Dim::symbol(symbol);
    type.shape.push_back(std::move(dim));
  }
  return type;
}

Value Region::input(const ir::Type& type) { return {ir::Builder(program_, program_.body).input(type)}; }

Value Region::zeros(const ir::Type& type) { return {ir::Builder(program_, program_.body).constant(0, type)}; }

namespace {

std::vector<ir::ValueId> ids_of(std::span<const Value> values) {
  std::vector<ir::ValueId> ids;
  for (Value value : values) ids.push_back(value.id);
  return ids;
}

}  // namespace

bool Region::can_inline(const ir::Program& program, std::span<const Value> inputs) const {
  return ir::can_inline(program, program_, ids_of(inputs));
}

std::vector<Value> Region::inline_program(const ir::Program& program, std::span<const Value> inputs) {
  ir::Builder builder(program_, program_.body);
  std::vector<Value> results;
  for (ir::ValueId id : ir::inline_program(builder, program, ids_of(inputs))) results.push_back({id});
  return results;
}

Value Region::aten(std::string_view op, const std::vector<Argument>& arguments, const ir::Type& result) {
  ir::Builder builder(program_, program_.body);
  return {import_aten({builder, op, arguments, result})};
}

std::vector<Value> Region::external(std::string call, std::string vjp, std::span<const Value> operands,
                                    const std::vector<ir::Type>& results) {
  ir::Op op{ir::OpCode::kExtern, {}, {}, {{"call", std::move(call)}}, {}};
  if (!vjp.empty()) op.attrs.emplace("vjp", std::move(vjp));
  for (Value operand : operands) op.operands.push_back(operand.id);
  std::vector<Value> values;
  ir::Builder builder(program_, program_.body);
  for (ir::ValueId id : builder.append(std::move(op), results).results) values.push_back({id});
  return values;
}

std::vector<Value> Region::custom_vjp(OwnDerivative derivative, std::span<const Value> inputs,
                                      std::span<const Value> values) {
  ir::Attrs attrs{{"vjp", std::move(derivative.vjp)}, {"inputs", static_cast<int64_t>(inputs.size())}};
  if (derivative.linear) attrs.emplace("linear", true);
  if (derivative.hook) attrs.emplace("hook", true);
  ir::Op op{ir::OpCode::kCustomVjp, {}, {}, std::move(attrs), {}};
  for (Value input : inputs) op.operands.push_back(input.id);
  for (Value value : values) op.operands.push_back(value.id);
  std::vector<Value> results;
  ir::Builder builder(program_, program_.body);
  for (ir::ValueId id : builder.append(std::move(op)).results) results.push_back({id});
  return results;
}

Value Region::refusing(Value value, std::string message) {
  ir::Attrs attrs{{"refuses", std::move(message)}, {"inputs", int64_t{1}}};
  ir::Builder builder(program_, program_.body);
  return {builder.append({ir::OpCode::kCustomVjp, {value.id, value.id}, {}, std::move(attrs), {}}).results[0]};
}

void Region::note(size_t first, std::string_view name, int64_t number) {
  for (size_t i = first; i < program_.body.ops.size(); ++i) program_.body.ops[i].attrs[std::string(name)] = number;
}

ir::Program Region::finish(std::span<const Value> outputs) {
  program_.name = "region";
  program_.body.results.clear();
  for (Value value : outputs) program_.body.results.push_back(value.id);
  return verified(std::move(program_));
}

bool is_elementwise(const ir::Program& program) {
  std::vector<ir::ValueId> same_everywhere;
  for (const ir::Op& op : program.body.ops) {
    const bool broadcasts_constant =
        ir::is_repeated(op.code) && std::ranges::find(same_everywhere, op.operands[0]) != same_everywhere.end();
    if (ir::is_constant(op.code) || broadcasts_constant) {
      same_everywhere.push_back(op.results[0]);
    } else if (ir::traits_of(op.code).marks != ir::Marks::kOwn &&
               ir::info(op.code).op_class != ir::OpClass::kElementwise) {
      return false;
    }
  }
  return true;
}

namespace {

bool has_symbolic_weights(const ir::Program& program, const ir::Block& block) {
  return std::ranges::any_of(block.ops, [&](const ir::Op& op) {
    auto is_symbolic = [](const ir::Dim& dim) { return !dim.is_constant(); };
    const ir::ValueId weights = ir::weights_of(op);
    return (weights != ir::kNoValue && std::ranges::any_of(program.type(weights).shape, is_symbolic)) ||
           std::ranges::any_of(op.regions,
                               [&](const ir::Block& region) { return has_symbolic_weights(program, region); });
  });
}

}  // namespace

bool has_symbolic_weights(const ir::Program& program) { return has_symbolic_weights(program, program.body); }

ir::Program keep_outputs(ir::Program program, const std::vector<bool>& keep) {
  std::vector<ir::ValueId>& results = program.body.results;
  check(keep.size() == results.size(), "the program has {} outputs, not {}", results.size(), keep.size());
  std::vector<ir::ValueId> kept;
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) kept.push_back(results[i]);
  results = std::move(kept);
  program.donations.clear();  // donations go by the position of results, and weft::call doesn't follow them
  return program;
}

}  // namespace weft::importer
