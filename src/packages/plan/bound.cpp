#include "packages/plan/bound.h"

#include <algorithm>
#include <cstring>

#include "interpreter/interpreter.h"
#include "ir/builder.h"
#include "ir/inline.h"
#include "ir/verifier.h"
#include "packages/plan/refusals.h"
#include "packages/plan/straighten.h"
#include "packages/plan/unit_dims.h"
#include "passes/native_calls/native_calls.h"
#include "passes/pass_runner.h"

namespace weft::packages {
namespace {

using interpreter::Array;
using ir::OpCode;
using ir::ValueId;

ir::Type type_of(const Array& array) { return {array.dtype, ir::Shape(array.sizes.begin(), array.sizes.end())}; }

/// The program with a number in the place of each symbol.
ir::Program without_symbols(const StepModel& model) {
  ir::Program program;
  program.name = model.name;
  ir::Builder builder(program, program.body);
  std::vector<ValueId> inputs;
  for (const Array& state : model.states) inputs.push_back(builder.input(type_of(state)));
  for (const ir::Type& input : model.inputs) inputs.push_back(builder.input(input));
  for (const Array& weight : model.weights) inputs.push_back(builder.input(type_of(weight)));
  builder.ret(ir::inline_program(builder, model.program, inputs));
  return program;
}

void check_states(const StepModel& model, const ir::Program& program) {
  check(program.body.results.size() >= model.states.size(), "weft.package: the step has {} states, but {} results",
        model.states.size(), program.body.results.size());
  for (size_t i = 0; i < model.states.size(); ++i) {
    const ir::Type &before = program.type(program.body.args[i]), &after = program.type(program.body.results[i]);
    check(before == after, "weft.package: state {} is {}, but the step gives {} for it", model.state_names[i],
          ir::to_string(before), ir::to_string(after));
  }
}

double read(const Array& array, int64_t offset) {
  if (array.dtype == DType::kF32) return array.data<float>()[offset];
  if (array.dtype == DType::kF64) return array.data<double>()[offset];
  const auto size = static_cast<size_t>(size_of(array.dtype));
  Array one(array.dtype, {});
  std::memcpy(one.bytes.data(), array.bytes.data() + static_cast<size_t>(offset) * size, size);
  return one.to_doubles()[0];
}

/// Gives memory of their own to results that are arguments, constants or views of these, and to each new state.
void copy_results(ir::Program& program, size_t states) {
  ir::Builder builder(program, program.body);
  const auto is_elsewhere = [&](ValueId value) {
    if (std::ranges::find(program.body.args, value) != program.body.args.end()) return true;
    const auto maker = std::ranges::find_if(
        program.body.ops, [&](const ir::Op& op) { return std::ranges::find(op.results, value) != op.results.end(); });
    const ir::Elements elements = ir::elements_of(maker->code);
    return maker->operands.empty() || (elements != ir::Elements::kComputed && elements != ir::Elements::kSame);
  };
  std::vector<ValueId> results = program.body.results;
  std::map<ValueId, ValueId> copies;  // outputs may share a copy with a state
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId given = results[i];
    const auto before = results.begin() + static_cast<std::ptrdiff_t>(std::min(i, states));
    const bool twice = i < states && std::find(results.begin(), before, given) != before;
    if (!twice && !is_elsewhere(given)) continue;
    const auto known = copies.find(given);
    results[i] = i >= states && known != copies.end() ? known->second : builder.unary(OpCode::kCopy, given);
    copies.emplace(given, results[i]);
  }
  program.body.results = results;
}

}  // namespace

std::vector<int64_t> sizes_of(const ir::Program& program, ValueId value) {
  std::vector<int64_t> sizes;
  for (const ir::Dim& dim : program.type(value).shape) sizes.push_back(dim.constant());
  return sizes;
}

Bound::Bound(const StepModel& model)
    : program_(without_symbols(model)),
      states_(model.states.size()),
      inputs_(model.inputs.size()),
      activations_(model.activations) {
  check_states(model, program_);
  const std::vector<ValueId> arguments = program_.body.args;
  straighten(program_);
  passes::native_calls(program_);
  passes::run_passes(program_, passes::compile_pipeline());
  put_unit_dims_in_front(program_);
  passes::run_passes(program_, passes::compile_pipeline());
  internal_check(program_.body.args == arguments, "a pass has changed the step's arguments");
  copy_results(program_, states_);
  ir::verify(program_);
  for (size_t i = 0; i < model.weights.size(); ++i)
    constants_.emplace(program_.body.args[states_ + inputs_ + i], model.weights[i]);
  index();
  refuse_what_has_no_form(*this);
}

void Bound::index() {
  makers_.assign(program_.values.size(), nullptr);
  is_constant_.assign(program_.values.size(), false);
  for (const auto& [value, array] : constants_) is_constant_[value] = true;
  for (const ir::Op& op : program_.body.ops) {
    bool constant = op.regions.empty() && !ir::traits_of(op.code).calls_out;
    for (ValueId operand : op.operands) constant = constant && is_constant_[operand];
    for (ValueId result : op.results) {
      makers_[result] = &op;
      is_constant_[result] = constant;
    }
  }
  is_known_ = is_constant_;
  for (ValueId result : program_.body.results) is_constant_[result] = false;  // they are copies, made at each step
}

std::optional<size_t> Bound::argument(ValueId value) const {
  const auto& args = program_.body.args;
  const auto found = std::ranges::find(args, value);
  const auto number = static_cast<size_t>(found - args.begin());
  return number < states_ + inputs_ ? std::optional(number) : std::nullopt;
}

const Array& Bound::constant(ValueId value) const {
  if (auto known = constants_.find(value); known != constants_.end()) return known->second;
  const ir::Op* op = makers_[value];
  internal_check(op != nullptr && is_known_[value], "no constant");
  std::vector<interpreter::View> operands;
  for (ValueId operand : op->operands) operands.push_back(constant(operand).view());
  std::vector<Array> results;
  std::vector<interpreter::MutableView> views;
  for (ValueId result : op->results) results.emplace_back(program_.type(result).dtype, sizes_of(program_, result));
  for (Array& result : results) views.push_back(result.view());
  interpreter::evaluate_op(program_, *op, operands, views, {});
  for (size_t i = 0; i < results.size(); ++i) constants_.emplace(op->results[i], std::move(results[i]));
  return constants_.at(value);
}

double Bound::element(ValueId value, std::vector<int64_t> at) const {
  const ir::Op* op = makers_[value];
  if (op != nullptr && ir::is_repeated(op->code)) {
    std::vector<int64_t> inner;
    for (int64_t dim : op->attr<std::vector<int64_t>>("dims")) inner.push_back(at[static_cast<size_t>(dim)]);
    return element(op->operands[0], inner);
  }
  const Array& array = constant(value);
  int64_t offset = 0;
  for (size_t i = 0; i < at.size(); ++i) offset = offset * array.sizes[i] + at[i];
  return read(array, offset);
}

}  // namespace weft::packages
