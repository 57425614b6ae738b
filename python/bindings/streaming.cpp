// Models over time as steps (src/streaming), for weft._streaming.

#include "streaming/streaming.h"

#include <ATen/ops/stack.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/program.h"
#include "operator/call.h"
#include "streaming/stream.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

py::tuple as_tuple(const streaming::Port& port) { return py::make_tuple(port.time_dim, port.per_chunk, port.lag); }

py::list as_list(const std::vector<streaming::Port>& ports) {
  py::list list;
  for (const streaming::Port& port : ports) list.append(as_tuple(port));
  return list;
}

/// Raises UnsupportedError in Python, with the recorded operation at which it was.
void raise(const streaming::RefusedError& refused) {
  const py::object type = py::module_::import("weft._base.errors").attr("UnsupportedError");
  const py::object error = type(refused.what());
  if (refused.operation >= 0) error.attr("operation") = refused.operation;
  PyErr_SetObject(type.ptr(), error.ptr());
}

/// The step once. Results: the next states, then the outputs.
std::vector<at::Tensor> run_chunk(const torch_operator::ProgramRef& step, std::vector<at::Tensor> states,
                                  const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& constants) {
  const at::NoGradGuard no_gradients;
  states.insert(states.end(), inputs.begin(), inputs.end());
  states.insert(states.end(), constants.begin(), constants.end());
  return torch_operator::call(step, states);
}

/// The step for each of some chunks, one after the other. `inputs`: of those that have a time, the stack of all chunks.
/// Results: the last states, then of each output the stack of all chunks.
std::vector<at::Tensor> run_chunks(const torch_operator::ProgramRef& step, std::vector<at::Tensor> states,
                                   const std::vector<std::pair<at::Tensor, bool>>& inputs,
                                   const std::vector<at::Tensor>& constants, int64_t chunks) {
  const at::NoGradGuard no_gradients;
  const size_t count = states.size();
  std::vector<std::vector<at::Tensor>> outputs;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::vector<at::Tensor> given;
    for (const auto& [input, is_stack] : inputs) given.push_back(is_stack ? input.select(0, chunk) : input);
    std::vector<at::Tensor> results = run_chunk(step, std::move(states), given, constants);
    outputs.resize(results.size() - count);
    for (size_t i = count; i < results.size(); ++i) outputs[i - count].push_back(std::move(results[i]));
    results.resize(count);
    states = std::move(results);
  }
  for (const std::vector<at::Tensor>& each : outputs) states.push_back(at::stack(each));
  return states;
}

}  // namespace

void init_streaming(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      std::rethrow_exception(std::move(error));
    } catch (const streaming::RefusedError& refused) {
      raise(refused);
    }
  });
  using streaming::Streamed;
  py::class_<Streamed>(m, "Streamed", "A model over time as a step (src/streaming/streaming.h).")
      .def_property_readonly(
          "step", [](const Streamed& s) { return Program(s.step); },
          "(states..., inputs of a chunk..., constants...) -> (next states..., outputs...)")
      .def_property_readonly(
          "start", [](const Streamed& s) { return Program(s.start); },
          "(weights...) -> (initial states..., derived constants...)")
      .def_readonly("chunk", &Streamed::chunk, "How many steps of the inputs are taken at once.")
      .def_readonly("states", &Streamed::states, "A name of each state.")
      .def_property_readonly(
          "constants",
          [](const Streamed& s) {
            py::list list;
            for (const auto& c : s.constants) list.append(py::make_tuple(c.is_weight, c.number));
            return list;
          },
          "Of each constant: whether it is a weight, else a result of `start`; and which.")
      .def_property_readonly(
          "inputs", [](const Streamed& s) { return as_list(s.inputs); },
          "Of each input (dim of its time or None, elements of a chunk, 0).")
      .def_property_readonly(
          "outputs", [](const Streamed& s) { return as_list(s.outputs); },
          "Of each output (dim of its time or None, elements of a chunk, lag in elements).");
  m.def(
      "run_chunk",
      [](const Program& step, std::vector<at::Tensor> states, const std::vector<at::Tensor>& inputs,
         const std::vector<at::Tensor>& constants) {
        const torch_operator::ProgramRef called = step.called();
        const py::gil_scoped_release no_gil;
        return run_chunk(called, std::move(states), inputs, constants);
      },
      py::arg("step"), py::arg("states"), py::arg("inputs"), py::arg("constants"));
  m.def(
      "run_chunks",
      [](const Program& step, std::vector<at::Tensor> states, const std::vector<std::pair<at::Tensor, bool>>& inputs,
         const std::vector<at::Tensor>& constants, int64_t chunks) {
        const torch_operator::ProgramRef called = step.called();
        const py::gil_scoped_release no_gil;
        return run_chunks(called, std::move(states), inputs, constants, chunks);
      },
      py::arg("step"), py::arg("states"), py::arg("inputs"), py::arg("constants"), py::arg("chunks"));
  m.def(
      "stream",
      [](const Program& whole, const std::vector<std::optional<size_t>>& time_dims, int64_t delay, int64_t group,
         int64_t chunk) {
        try {
          return streaming::stream(*whole, time_dims, delay, group, chunk);
        } catch (const streaming::RefusedError&) {
          throw;
        } catch (const Error& error) {
          throw streaming::RefusedError(error.what(), -1);
        }
      },
      py::arg("program"), py::arg("time_dims"), py::arg("delay"), py::arg("group") = 1, py::arg("chunk") = 0,
      "The program, whose first inputs are a model's and the others weights, as a step. UnsupportedError, with the "
      "recorded operation, for what can't be one.");
}

}  // namespace weft::bindings
