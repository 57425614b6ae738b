// The operations of runs, and their arguments.

#include <ATen/ops/equal.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "operator/program_table.h"
#include "passes/differentiation/own_derivatives.h"
#include "programs/extern_text.h"
#include "programs/writer.h"

namespace weft::programs {

using c10::IValue;
using importer::Argument;
using importer::Value;
using record::Operation;
using record::Recording;

void Writer::write(const Operation& a, const Operation& b) {
  if (a.op && has_complex(a)) return complex(a, b);
  std::vector<Value> results;
  if (!a.op) {
    std::vector<Value> lists[2];
    for (size_t i = 0; i < 2; ++i) {
      for (int64_t id : MatchedRuns::ids(one(), arguments_of(one(), a)[i])) lists[i].push_back(value(id));
    }
    if (a.refuses) {
      results = {region_.refusing(lists[1][0], a.vjp)};
    } else {  // the cotangents, which come last
      const bool linear = a.derivable && passes::is_linear(torch_operator::find_program(a.vjp)->program(),
                                                           lists[0].size() + lists[1].size());
      results = region_.custom_vjp({a.vjp, linear, a.is_hook}, lists[0], lists[1]);
    }
  } else if (name_of(a) == "weft.call.default") {
    auto arguments = arguments_of(one(), a);
    const std::string& text = arguments[0].toStringRef();
    if (text != arguments_of(two(), b)[0].toStringRef()) throw Mismatch();
    std::vector<Value> inputs;
    for (int64_t id : MatchedRuns::ids(one(), arguments[1])) inputs.push_back(value(id));
    const torch_operator::ProgramRef called = torch_operator::find_program(text);
    results = region_.can_inline(called->program(), inputs) ? region_.inline_program(called->program(), inputs)
                                                            : external(a, b);
  } else if (name_of(a) == "aten.detach.default") {
    results = {value(MatchedRuns::ids(one(), arguments_of(one(), a))[0])};
  } else {
    results = aten(a, b);
  }
  size_t next = 0;
  for (int64_t id : a.results) {
    if (id < 0) continue;
    Value value = results.at(next++);
    if (!a.grad_mode && is_floating(region_.type(value).dtype))
      value = region_.aten("weft.stop_gradient", {value}, type(id));
    values_[id] = value;
  }
}

std::vector<Value> Writer::aten(const Operation& a, const Operation& b) {
  if (a.results.size() == 1) {
    std::string name = name_of(a);
    if (name == "weft.stop_gradient.default") name = "weft.stop_gradient";
    std::vector<Argument> arguments;
    auto given = arguments_of(one(), a), others = arguments_of(two(), b);
    for (size_t i = 0; i < given.size(); ++i)
      arguments.push_back(argument(given[i], others[i], a.op->schema().arguments()[i]));
    ir::Type result = type(a.results[0]);
    try {
      return {region_.aten(name, arguments, result)};
    } catch (const Error&) {
      if (name == "weft.stop_gradient") throw;
    }
  }
  return external(a, b);
}

/// Emits an `extern` op for an operation that the IR lacks.
std::vector<Value> Writer::external(const Operation& a, const Operation& b) {
  std::vector<int64_t> operands;
  for (int64_t id : MatchedRuns::ids(one(), arguments_of(one(), a))) {
    if (std::ranges::find(operands, id) == operands.end()) operands.push_back(id);
  }
  auto number_of = [&](const at::Tensor& tensor) {
    auto id = one().id(tensor);
    auto found = id ? std::ranges::find(operands, *id) : operands.end();
    internal_check(found != operands.end(), "an operand of {} that has no number", name_of(a));
    return static_cast<size_t>(found - operands.begin());
  };
  std::vector<ir::Shape> operand_sizes;
  std::vector<Value> inputs;
  for (int64_t id : operands) {
    operand_sizes.push_back(runs_.sizes(id));
    inputs.push_back(value(id));
  }
  std::vector<IValue> given = arguments_of(one(), a).vec(), others = arguments_of(two(), b).vec();
  for (size_t i = 0; i < given.size() && is_checked(a); ++i) {
    if (a.op->schema().arguments()[i].name() == "check_errors") given[i] = others[i] = true;
  }
  ExternOperation operation{*a.op, {}, given, number_of, {}, {}};
  for (int64_t id : operands) operation.operands.push_back(described(id));
  const std::function<size_t(const ir::Dim&)> carrier = [&](const ir::Dim& size) {
    inputs.push_back(region_.zeros({DType::kI64, {renamed(size), 0}}));
    operand_sizes.push_back({size, 0});
    operation.operands.push_back({at::kLong, {runs_.fit().in_first(size), 0}, {to_string(size), ""}, false});
    return inputs.size() - 1;
  };
  operation.call = extern_text(*a.op, given, others, runs_.fit(), operand_sizes, number_of, carrier);
  std::vector<ir::Type> types;
  for (int64_t id : a.results) {
    if (id < 0) continue;
    types.push_back(type(id));
    operation.results.push_back(described(id));
  }
  const torch_operator::ProgramRef vjp = derivative_(operation);
  return region_.external(operation.call, vjp ? vjp->text() : "", inputs, types);
}

ExternOperation::Tensor Writer::described(int64_t id) {
  ExternOperation::Tensor tensor{runs_.dtype(id), {}, {}, id >= 0 && runs_.first().requires_gradient(id)};
  auto dims = runs_.sizes(id);
  for (size_t i = 0; i < dims.size(); ++i) {
    tensor.sizes.push_back(id < 0 ? dims[i].constant() : one().metas()[static_cast<size_t>(id)].sizes[i]);
    tensor.expressions.push_back(dims[i].is_constant() ? "" : to_string(dims[i]));
  }
  return tensor;
}

/// Whether the function raises an error if this operation's error code is set (aten._linalg_check_errors).
bool Writer::is_checked(const Operation& operation) {
  for (const Operation& other : one().operations()) {
    if (name_of(other) != "aten._linalg_check_errors.default") continue;
    for (int64_t id : MatchedRuns::ids(one(), arguments_of(one(), other))) {
      if (std::ranges::find(operation.results, id) != operation.results.end()) return true;
    }
  }
  return false;
}

// ---- arguments

Argument Writer::integer(int64_t a, int64_t b) {
  if (a != b && is_negative(a, b)) return importer::Negative{renamed(size_of(runs_.fit(), -a, -b))};
  const ir::Dim size = size_of(runs_.fit(), a, b);
  if (!size.is_constant()) return renamed(size);
  return size.constant();
}

Argument Writer::argument(const IValue& a, const IValue& b, const c10::Argument& parameter) {
  if (a.tagKind() != b.tagKind()) throw Mismatch();
  if (a.isTensor()) return tensor(a.toTensor(), b.toTensor());
  if (a.isNone()) return std::monostate();
  if (is_code(parameter.real_type())) {  // the result's type holds what it decides
    if (a.toInt() != b.toInt()) throw Mismatch();
    return importer::Unknown();
  }
  if (a.isBool()) {
    if (a.toBool() != b.toBool()) throw Mismatch();
    return a.toBool();
  }
  if (a.isInt()) return integer(a.toInt(), b.toInt());
  if (a.isDouble()) {
    if (std::bit_cast<int64_t>(a.toDouble()) != std::bit_cast<int64_t>(b.toDouble())) throw Mismatch();
    return a.toDouble();
  }
  if (a.isString()) {
    if (a.toStringRef() != b.toStringRef()) throw Mismatch();
    return a.toStringRef();
  }
  if (a.isList()) return list(a, b, parameter);
  return importer::Unknown();
}

Argument Writer::tensor(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) throw Mismatch();
  if (!a.defined()) return std::monostate();
  auto id = one().id(a);
  if (id != two().id(b)) throw Mismatch();
  if (id) return value(*id);
  if (a.scalar_type() != b.scalar_type()) throw Mismatch();
  if (a.scalar_type() == at::kDouble) {
    if (!at::equal(a, b)) throw Mismatch();
    return *a.const_data_ptr<double>();
  }
  if (a.scalar_type() == at::kLong) return integer(*a.const_data_ptr<int64_t>(), *b.const_data_ptr<int64_t>());
  if (a.scalar_type() == at::kBool && at::equal(a, b)) return *a.const_data_ptr<bool>();
  throw Mismatch();
}

Argument Writer::list(const IValue& a, const IValue& b, const c10::Argument& parameter) {
  auto items = a.toListRef(), others = b.toListRef();
  if (items.size() != others.size()) throw Mismatch();
  std::vector<int64_t> integers;
  std::vector<ir::Dim> dims;
  std::vector<Value> tensors;
  std::vector<std::optional<Value>> optional_tensors;
  for (size_t i = 0; i < items.size(); ++i) {
    Argument item = argument(items[i], others[i], parameter);
    if (auto* number = std::get_if<int64_t>(&item)) integers.push_back(*number), dims.emplace_back(*number);
    if (auto* size = std::get_if<ir::Dim>(&item)) dims.push_back(*size);
    if (auto* negative = std::get_if<importer::Negative>(&item)) dims.push_back(ir::Dim(-1) * negative->size);
    if (auto* value = std::get_if<Value>(&item)) tensors.push_back(*value);
    if (std::holds_alternative<Value>(item) || std::holds_alternative<std::monostate>(item))
      optional_tensors.push_back(std::holds_alternative<Value>(item) ? std::optional(std::get<Value>(item))
                                                                     : std::nullopt);
  }
  if (integers.size() == items.size()) return integers;
  if (dims.size() == items.size()) return dims;
  if (tensors.size() == items.size()) return tensors;
  if (optional_tensors.size() == items.size()) return optional_tensors;
  return importer::Unknown();
}

}  // namespace weft::programs
