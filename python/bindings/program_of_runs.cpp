// Recorded runs as programs (pytorch/programs), for weft._capture.trace.

#include "programs/program_of_runs.h"

#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/callbacks.h"
#include "bindings/program.h"
#include "decompose/decompose.h"
#include "operator/extern_arguments.h"
#include "programs/extern_text.h"
#include "programs/imported_run.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

using record::Recording;

/// An argument as Python functions take it. A dtype, layout or memory format becomes Python's object instead of its
/// number.
py::object as_python(const c10::IValue& value, const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>(); optional && !value.isNone())
    return as_python(value, optional->getElementType());
  if (value.isInt() && type->kind() == c10::TypeKind::ScalarTypeType)
    return py::cast(static_cast<at::ScalarType>(value.toInt()));
  if (value.isInt() && type->kind() == c10::TypeKind::MemoryFormatType)
    return py::cast(static_cast<at::MemoryFormat>(value.toInt()));
  if (value.isInt() && type->kind() == c10::TypeKind::LayoutType)
    return py::cast(static_cast<at::Layout>(value.toInt()));
  return torch::jit::toPyObject(value);
}

py::tuple name_of(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return py::make_tuple(name.name, name.overload_name.empty() ? "default" : name.overload_name);
}

/// Wraps a function (payload, tensors) -> program.
auto derivative_with(py::function function) {
  return [function](size_t payload, const std::vector<at::Tensor>& like) {
    py::gil_scoped_acquire gil;
    return function(payload, like).cast<const Program&>().called();
  };
}

/// An argument for Python: a tensor as ("operand", number), a size that may vary as ("size", factor, [(operand, dim)]),
/// any other argument as Python's object. `text`: the argument in the operation's call.
py::object spelled(const programs::ExternOperation& operation, const torch_operator::ExternArgument& text,
                   const c10::IValue& value, const c10::TypePtr& type) {
  if (!text.sizes.empty()) return py::make_tuple("size", text.integer, text.sizes);
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return py::none();
    return py::make_tuple("operand", operation.operand(value.toTensor()));
  }
  if (value.isList()) {
    py::list list;
    const c10::List<c10::IValue> items = value.toList();
    for (size_t i = 0; i < items.size(); ++i) list.append(spelled(operation, text.items.at(i), items.get(i), type));
    return list;
  }
  return as_python(value, type);
}

py::list types_of(const std::vector<programs::ExternOperation::Tensor>& tensors) {
  py::list list;
  for (const auto& tensor : tensors)
    list.append(py::make_tuple(tensor.dtype, tensor.sizes, tensor.expressions, tensor.requires_gradient));
  return list;
}

py::object unsupported_error() { return py::module_::import("weft._base.errors").attr("UnsupportedError"); }
py::object unproven_gradient_error() { return py::module_::import("weft._base.errors").attr("UnprovenGradientError"); }

/// Raises the error in Python, with the number of the recorded operation at which it arose.
void raise(const py::object& type, const record::UnsupportedError& found) {
  const py::object error = type(found.what());
  const bool is_known = found.operation != record::UnsupportedError::kNoOperation;
  error.attr("operation") = is_known ? py::object(py::int_(found.operation)) : py::object(py::none());
  PyErr_SetObject(type.ptr(), error.ptr());
}

/// Wraps a function (call, name, arguments, operands, results) -> program or None. Operands and results are tuples
/// (dtype, sizes, expressions of sizes or "", whether autograd would ask for the derivative).
programs::ExternDerivative extern_derivative_with(const py::function& function) {
  return [&function](const programs::ExternOperation& operation) -> torch_operator::ProgramRef {
    py::list arguments;
    const std::vector<torch_operator::ExternArgument> texts =
        torch_operator::parse_extern_call(operation.call).arguments;
    for (size_t i = 0; i < operation.arguments.size(); ++i)
      arguments.append(
          spelled(operation, texts.at(i), operation.arguments[i], operation.op.schema().arguments()[i].real_type()));
    try {
      const py::object found = function(operation.call, name_of(operation.op), arguments, types_of(operation.operands),
                                        types_of(operation.results));
      return found.is_none() ? nullptr : found.cast<const Program&>().called();
    } catch (const py::error_already_set& error) {
      if (!error.matches(unsupported_error())) throw;
      throw record::UnsupportedError(py::str(error.value()));  // the writer adds the operation
    }
  };
}

/// (program, [(method, arguments, dtype, [(factor, [(input, dim)])])], constants, sizes)
py::tuple program_of_runs(const std::vector<Recording*>& runs, const std::vector<size_t>& free,
                          const py::function& decompose, const std::vector<py::function>& derivatives,
                          const record::SizeFit& sizes, const py::function& extern_derivative,
                          const std::optional<std::pair<std::set<std::string>, std::set<std::string>>>& whole,
                          bool has_pairs, bool keeps_unread) {
  std::vector<programs::SourceRun> sources;
  for (size_t i = 0; i < runs.size(); ++i)
    sources.push_back({runs[i], free, {decompose_with(decompose), derivative_with(derivatives.at(i))}});
  // A loop would call PyTorch in each of its steps. Code for fewer sizes is faster.
  const programs::Noted noted = whole ? programs::Noted{whole->first, whole->second} : programs::Noted();
  auto program = programs::program_of_runs(sources, sizes, extern_derivative_with(extern_derivative),
                                           whole ? programs::Whole::kWhereSizesDecide : programs::Whole::kNever,
                                           whole ? &noted : nullptr,
                                           has_pairs ? programs::ComplexEnds::kPairs : programs::ComplexEnds::kRefused,
                                           keeps_unread ? programs::Unread::kKept : programs::Unread::kLeftOut);
  py::list noise;
  for (const auto& one : program.noise) {
    py::list arguments;
    for (const c10::IValue& argument : one.draw.arguments) arguments.append(torch::jit::toPyObject(argument));
    noise.append(py::make_tuple(one.draw.method, py::tuple(arguments), one.dtype, one.sizes));
  }
  return py::make_tuple(Program(std::move(program.program)), noise, program.constants, program.sizes);
}

/// A class of Python's, made with the module.
py::handle mismatch;

}  // namespace

decltype(programs::Callbacks::decompose) decompose_with(py::function function) {
  return [function](const c10::OperatorHandle& op,
                    const torch::jit::Stack& arguments) -> std::optional<torch::jit::Stack> {
    py::gil_scoped_acquire gil;
    py::list given;
    for (size_t i = 0; i < arguments.size(); ++i)
      given.append(as_python(arguments[i], op.schema().arguments()[i].real_type()));
    py::object found = function(name_of(op), given);
    if (found.is(py::reinterpret_borrow<py::object>(Py_NotImplemented))) return std::nullopt;
    const auto& returns = op.schema().returns();
    torch::jit::Stack results;
    if (returns.size() == 1) {
      results.push_back(torch::jit::toIValue(found, returns[0].type()));
    } else {
      auto several = found.cast<py::sequence>();
      for (size_t i = 0; i < returns.size(); ++i)
        results.push_back(torch::jit::toIValue(several[i], returns[i].type()));
    }
    return results;
  };
}

void init_program_of_runs(py::module_& m) {
  mismatch = py::exception<programs::Mismatch>(m, "MismatchError").release();
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      std::rethrow_exception(std::move(error));
    } catch (const programs::Mismatch&) {
      PyErr_SetString(mismatch.ptr(), "what it does depends on sizes");
    } catch (const programs::UnprovenGradientError& unproven) {
      raise(unproven_gradient_error(), unproven);
    } catch (const record::UnsupportedError& unsupported) {
      raise(unsupported_error(), unsupported);
    }
  });
  m.def(
      "decomposes",
      [](const std::string& name, const std::string& overload) {
        return decompose::find({name, overload == "default" ? "" : overload}) != nullptr;
      },
      py::arg("name"), py::arg("overload"), "Whether the operation is made of others by Weft's own functions.");
  m.def(
      "inject_gradient_fault",
      [](const std::string& fault) {
        programs::inject(fault == "stops"   ? programs::GradientFault::kStops
                         : fault == "hooks" ? programs::GradientFault::kHooks
                                            : programs::GradientFault::kNone);
      },
      py::arg("fault"), "For tests: programs without stops of gradients, or without hooks, from here on.");
  m.def(
      "program_of_runs", &program_of_runs, py::arg("runs"), py::arg("free"), py::arg("decompose"),
      py::arg("derivatives"), py::arg("sizes"), py::arg("extern_derivative"), py::arg("whole") = py::none(),
      py::arg("has_pairs") = false, py::arg("keeps_unread") = false,
      "What recorded runs of one function have in common, as a program. `derivatives`: for each run, of the "
      "derivatives that it recorded. `whole`: operations that stay "
      "whole, and those that do where their decomposition depends on sizes; each op then says of which operation it is "
      "a part. `has_pairs`: complex inputs and outputs are pairs [..., 2]; otherwise there may be none. "
      "`keeps_unread`: operations whose results nobody reads are in the program too, where it can express them.");
}

}  // namespace weft::bindings
