#include "programs/program_of_runs.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "importer/region.h"
#include "ir/inline.h"
#include "operator/program_table.h"
#include "operator/signature.h"
#include "passes/differentiation/gradient_paths.h"
#include "passes/differentiation/own_derivatives.h"
#include "programs/extern_text.h"
#include "programs/matched_runs.h"

namespace weft::programs {

using c10::IValue;
using importer::Argument;
using importer::Value;
using record::Operation;
using record::Recording;

namespace {

class Writer {
 public:
  Writer(MatchedRuns& runs, const ExternDerivative& derivative, bool is_noted)
      : runs_(runs), derivative_(derivative), is_noted_(is_noted) {}

  RunsProgram write();

 private:
  Recording& one() { return runs_.one(); }
  Recording& two() { return runs_.two(); }
  void add_inputs();
  void write_kept();
  ir::Dim renamed(const ir::Dim& size);
  ir::Type type(int64_t id);
  void add_input(int64_t id);
  void add_noise(const Operation& a, const Operation& b);
  void add_constants();
  void add_sizes();
  void keep_paths();
  void write(const Operation& a, const Operation& b);
  std::vector<Value> aten(const Operation& a, const Operation& b);
  std::vector<Value> external(const Operation& a, const Operation& b);
  bool is_checked(const Operation& operation);
  Argument argument(const IValue& a, const IValue& b, const c10::Argument& parameter);
  Argument tensor(const at::Tensor& a, const at::Tensor& b);
  Argument list(const IValue& a, const IValue& b, const c10::Argument& parameter);
  Argument integer(int64_t a, int64_t b);
  ExternOperation::Tensor described(int64_t id);

  MatchedRuns& runs_;
  const ExternDerivative& derivative_;
  bool is_noted_;
  importer::Region region_;
  RunsProgram program_;
  std::map<int64_t, Value> values_;
  ir::SymbolSizes names_;  ///< by symbol, in order of appearance: so equal programs print alike
  std::map<std::string, std::pair<size_t, size_t>> binders_;  ///< by symbol: the input and dim that has it
};

RunsProgram Writer::write() {
  add_inputs();
  write_kept();
  std::vector<Value> outputs;
  for (int64_t id : one().outputs()) outputs.push_back(values_.at(id));
  add_sizes();
  program_.program = region_.finish(outputs);
  keep_paths();
  return std::move(program_);
}

void Writer::add_inputs() {
  for (int64_t i = 0; i < runs_.first().inputs(); ++i) {
    auto dims = runs_.sizes(i);
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      if (dims[dim].is_symbol()) binders_.try_emplace(dims[dim].name(), static_cast<size_t>(i), dim);
    }
    add_input(i);
  }
  for (auto [a, b] : runs_.kept()) {
    if (is_draw(name_of(*a))) add_noise(*a, *b);
  }
  for (int64_t i = 0; i < runs_.first().captured(); ++i) add_input(runs_.first().inputs() + i);
  add_constants();
}

void Writer::write_kept() {
  for (auto [a, b] : runs_.kept()) {
    if (is_draw(name_of(*a))) continue;
    const auto at = static_cast<size_t>(a - one().operations().data());
    runs_.blame(at);
    const size_t first_op = region_.ops();
    try {
      write(*a, *b);
      if (is_noted_) region_.note(first_op, kSourceOperation, static_cast<int64_t>(runs_.first().source_of(at)));
    } catch (record::UnsupportedError& error) {
      if (error.operation == record::UnsupportedError::kNoOperation) error.operation = runs_.first().source_of(at);
      throw;
    }
  }
  runs_.blame_none();
}

void Writer::add_sizes() {
  for (int64_t i = 0; i < one().inputs(); ++i) {
    auto& found = program_.sizes.emplace_back();
    for (const ir::Dim& size : runs_.sizes(i)) {
      if (size.is_constant()) {
        found.emplace_back(size.constant());
      } else {
        found.emplace_back(to_string(renamed(size)));
      }
    }
  }
  for (const at::Tensor& constant : program_.constants)
    program_.sizes.emplace_back(constant.sizes().begin(), constant.sizes().end());
}

/// Autograd may see a path to an input where the program has none: `torch.copysign(x, y)` has a gradient of zeros by y.
/// Such an input gets a reader that nobody reads, and so counts as reached (passes/differentiation/gradient_paths.h).
void Writer::keep_paths() {
  const Recording& source = runs_.first().source();
  ir::Program& program = program_.program;
  const std::vector<bool> known =
      passes::GradientPaths(program).reached(std::vector<bool>(program.body.results.size(), true));
  for (int64_t end : source.graph().reached_ends(source.output_uses())) {
    const auto value = values_.find(end < 0 ? runs_.first().inputs() - 1 - end : end);
    if (value == values_.end()) continue;
    const ir::ValueId input = value->second.id;
    const auto place = std::ranges::find(program.body.args, input);
    if (place == program.body.args.end() || known[static_cast<size_t>(place - program.body.args.begin())]) continue;
    passes::add_path(program, input);
  }
}

// ---- types and inputs

/// The size in the program's symbols.
ir::Dim Writer::renamed(const ir::Dim& size) {
  std::set<std::string> used;
  size.add_symbols(used);
  for (const std::string& symbol : used)
    names_.try_emplace(symbol, ir::Dim::symbol("N" + std::to_string(names_.size())));
  return substitute(size, names_);
}

ir::Type Writer::type(int64_t id) {
  const at::ScalarType scalar_type = runs_.dtype(id);
  auto dtype = torch_operator::dtype_of(scalar_type);
  if (!dtype) throw record::UnsupportedError(std::string("a tensor of ") + python_name(scalar_type));
  ir::Type type{*dtype, {}};
  for (const ir::Dim& size : runs_.sizes(id)) type.shape.push_back(renamed(size));
  return type;
}

void Writer::add_input(int64_t id) { values_[id] = region_.input(type(id)); }

void Writer::add_noise(const Operation& a, const Operation& b) {
  Draw draw = make_draw(name_of(a), arguments_of(one(), a)), other = make_draw(name_of(b), arguments_of(two(), b));
  for (size_t i = 0; i < draw.arguments.size(); ++i) {
    if (!draw.arguments[i].toScalar().equal(other.arguments[i].toScalar().toDouble())) throw Mismatch();
  }
  int64_t id = a.results[0];
  Noise noise{std::move(draw), one().metas().at(static_cast<size_t>(id)).dtype, {}};
  for (const ir::Dim& size : runs_.sizes(id)) {
    // A product of inputs' sizes.
    if (size.terms().size() + (size.number() != 0 ? 1 : 0) > 1) throw Mismatch();
    auto& [factor, dims] = noise.sizes.emplace_back(size.number(), std::vector<std::pair<size_t, size_t>>());
    for (const ir::Dim::Term& term : size.terms()) {
      factor = term.factor;
      for (const ir::Dim::Atom& atom : term.atoms) {
        if (!binders_.contains(atom.symbol)) throw Mismatch();
        dims.push_back(binders_.at(atom.symbol));
      }
    }
  }
  add_input(id);
  program_.noise.push_back(std::move(noise));
}

/// Adds the constants: tensors that were made of Python numbers, not by a recorded operation.
void Writer::add_constants() {
  if (one().outside().size() != two().outside().size()) throw Mismatch();
  for (size_t i = 0; i < one().outside().size(); ++i) {
    const at::Tensor& a = one().outside()[i];
    const at::Tensor& b = two().outside()[i];
    if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || !at::equal(a, b)) throw Mismatch();
    program_.constants.push_back(a.detach().clone());
    add_input(-1 - static_cast<int64_t>(i));
  }
}

// ---- operations

void Writer::write(const Operation& a, const Operation& b) {
  std::vector<Value> results;
  if (!a.op) {
    std::vector<Value> lists[2];
    for (size_t i = 0; i < 2; ++i) {
      for (int64_t id : MatchedRuns::ids(one(), arguments_of(one(), a)[i])) lists[i].push_back(values_.at(id));
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
    for (int64_t id : MatchedRuns::ids(one(), arguments[1])) inputs.push_back(values_.at(id));
    const torch_operator::ProgramRef called = torch_operator::find_program(text);
    results = region_.can_inline(called->program(), inputs) ? region_.inline_program(called->program(), inputs)
                                                            : external(a, b);
  } else if (name_of(a) == "aten.detach.default") {
    results = {values_.at(MatchedRuns::ids(one(), arguments_of(one(), a))[0])};
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
    inputs.push_back(values_.at(id));
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
  if (id) return values_.at(*id);
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

}  // namespace

namespace {

std::vector<std::unique_ptr<ImportedRun>> imported(const std::vector<SourceRun>& runs, ImportedRun::Way& way) try {
  std::vector<std::unique_ptr<ImportedRun>> found;
  for (const SourceRun& run : runs)
    found.push_back(std::make_unique<ImportedRun>(*run.recording, run.free, way, run.callbacks));
  return found;
} catch (const NeedsFunctionalError&) {
  if (way.functional) throw;
  way.functional = true;
  return imported(runs, way);
}

}  // namespace

RunsProgram program_of_runs(const std::vector<SourceRun>& runs, const record::SizeFit& sizes,
                            const ExternDerivative& derivative, Whole whole, const Noted* noted) {
  ImportedRun::Way way;
  if (noted != nullptr) way.whole = noted->whole;
  while (true) {
    const std::vector<std::unique_ptr<ImportedRun>> all = imported(runs, way);
    record::SizeFit fit = sizes;
    // Records don't contain the sizes within decompositions, so no call would check a guess.
    fit.stop_guessing();
    MatchedRuns matched(all, fit);
    auto stays_whole = [&] {
      const bool may = noted == nullptr || noted->may_stay.contains(matched.blamed());
      return whole == Whole::kWhereSizesDecide && may && !matched.blamed().empty() &&
             way.whole.insert(matched.blamed()).second;
    };
    try {
      matched.match();
      return Writer(matched, derivative, noted != nullptr).write();
    } catch (const Mismatch&) {
      if (!stays_whole()) throw;
    } catch (const record::UnsupportedError&) {
      if (!stays_whole()) throw;
    }
  }
}

}  // namespace weft::programs
