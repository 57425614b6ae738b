// Models over time as steps (src/streaming), for weft._streaming.

#include "streaming/streaming.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/machine_stream.h"
#include "bindings/program.h"
#include "bindings/stream_state.h"
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

/// Raises UnsupportedError in Python, with the number of the recorded operation.
void raise(const streaming::RefusedError& refused) {
  const py::object type = py::module_::import("weft._base.errors").attr("UnsupportedError");
  const py::object error = type(refused.what());
  if (refused.operation >= 0) error.attr("operation") = refused.operation;
  PyErr_SetObject(type.ptr(), error.ptr());
}

using Times = std::vector<std::optional<int64_t>>;

void init_machine_streams(py::module_& m) {
  py::class_<StreamCode, std::shared_ptr<StreamCode>>(m, "StreamCode", "A stream's step as a package's machine code.")
      .def(py::init<const Program&, const std::vector<at::Tensor>&, std::vector<at::Tensor>, const Times&,
                    const Times&>(),
           py::arg("step"), py::arg("states"), py::arg("constants"), py::arg("input_times"), py::arg("output_times"),
           py::call_guard<py::gil_scoped_release>(), "RuntimeError where packages have no form of the step.")
      .def_property_readonly("target", [](const StreamCode& code) { return code.step->target(); })
      .def(
          "wait", [](const StreamCode& code) { code.step->wait(); }, py::call_guard<py::gil_scoped_release>(),
          "Until what is compiled in the background is there.");
  py::class_<MachineStream>(m, "MachineStream", "The state of a stream whose steps are machine code.")
      .def(py::init<std::shared_ptr<StreamCode>, const py::object&>(), py::arg("code"), py::arg("results"))
      .def("set", &MachineStream::set, py::arg("states"), "Goes on from these states.")
      .def("get", &MachineStream::get, "Copies of the states, in order.")
      .def("step", &MachineStream::step, py::arg("arguments"),
           "A chunk of plain tensors: its results, in their structure or as a list. None for other arguments.")
      .def("run", &MachineStream::run, py::arg("arguments"), "The same for any number of chunks.")
      .def_property_readonly("is_structured", &MachineStream::is_structured, "Whether results aren't a list of them.")
      .def("run_chunk", &MachineStream::run_chunk, py::arg("inputs"), "The step once: its outputs.")
      .def("run_chunks", &MachineStream::run_chunks, py::arg("inputs"), py::arg("chunks"),
           "The step for each of some chunks: stacks of its outputs.");
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
  py::class_<StreamState>(m, "StreamState", "The state of a stream between its steps (bindings/stream_state.h).")
      .def(py::init<const Program&, std::vector<at::Tensor>, std::vector<at::Tensor>>(), py::arg("step"),
           py::arg("states"), py::arg("constants"))
      .def("set", &StreamState::set, py::arg("states"), py::call_guard<py::gil_scoped_release>(),
           "Goes on from these states.")
      .def("get", &StreamState::get, py::call_guard<py::gil_scoped_release>(), "Copies of the states, in order.")
      .def("run_chunk", &StreamState::run_chunk, py::arg("inputs"), py::call_guard<py::gil_scoped_release>(),
           "The step once: its outputs.")
      .def("run_chunks", &StreamState::run_chunks, py::arg("inputs"), py::arg("chunks"),
           py::call_guard<py::gil_scoped_release>(), "The step for each of some chunks: stacks of its outputs.");
  init_machine_streams(m);
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
