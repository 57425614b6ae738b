// ATen operations made of others, for weft._step_functions.

#include "decompose/decompose.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

/// Of aten::lerp.Scalar and of aten::mish.
bool decomposes(const std::string& name) {
  size_t dot = name.find('.');
  c10::OperatorName full(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
  return decompose::find(full) != nullptr;
}

/// `arguments`: all, in the schema's order.
py::object decomposed(const std::string& name, const std::string& overload, const py::list& arguments) {
  c10::OperatorName full(name, overload);
  const c10::KernelFunction* kernel = decompose::find(full);
  auto op = c10::Dispatcher::singleton().findSchema(full);
  TORCH_CHECK(kernel != nullptr && op.has_value(), "weft internal error: no decomposition of ", full);
  const auto& parameters = op->schema().arguments();
  TORCH_CHECK(parameters.size() == arguments.size(), "weft internal error: ", full, " of ", arguments.size(),
              " arguments");
  torch::jit::ToIValueAllowNumbersAsTensors numbers_too(true);
  torch::jit::Stack stack;
  for (size_t i = 0; i < parameters.size(); ++i) {
    py::object argument = arguments[i];
    stack.push_back(torch::jit::toIValue(argument, parameters[i].type(), parameters[i].N()));
  }
  kernel->callBoxed(*op, c10::DispatchKeySet(), &stack);
  return torch::jit::createPyObjectForStack(std::move(stack));
}

}  // namespace

void init_decompose(py::module_& m) {
  m.def("decomposes", &decomposes, py::arg("name"), "Whether there is a decomposition of aten::name.overload here.");
  m.def("decompose", torch::wrap_pybind_function(decomposed), py::arg("name"), py::arg("overload"),
        py::arg("arguments"));
}

}  // namespace weft::bindings
