// Regions of ATen graphs as programs, for weft.backend.

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "capture/aten_ops.h"
#include "capture/compose.h"
#include "capture/compose_control.h"
#include "capture/partition.h"
#include "capture/region.h"
#include "ir/type.h"

namespace py = pybind11;

namespace weft::bindings {

void init_capture(py::module_& m) {
  using capture::Region;
  using capture::Value;
  py::class_<Value>(m, "Value");
  py::class_<capture::Unknown>(m, "Unknown").def(py::init<>());
  py::class_<ir::Type>(m, "Type")
      .def(py::init(&capture::make_type), py::arg("dtype"), py::arg("sizes"))
      .def("__str__", [](const ir::Type& type) { return ir::to_string(type); });
  py::class_<Region>(m, "Region")
      .def(py::init<>())
      .def("input", &Region::input, py::arg("type"))
      .def(
          "inline_program",
          [](Region& region, const std::string& text, const std::vector<Value>& inputs) {
            return region.inline_program(text, inputs);
          },
          py::arg("text"), py::arg("inputs"))
      .def("aten", &Region::aten, py::arg("op"), py::arg("arguments"), py::arg("result"))
      .def(
          "external",
          [](Region& region, const std::string& call, const std::string& vjp, const std::vector<Value>& operands,
             const std::vector<ir::Type>& results) { return region.external(call, vjp, operands, results); },
          py::arg("call"), py::arg("vjp"), py::arg("operands"), py::arg("results"))
      .def(
          "custom_vjp",
          [](Region& region, const std::string& vjp, const std::vector<Value>& inputs,
             const std::vector<Value>& values) { return region.custom_vjp({vjp}, inputs, values); },
          py::arg("vjp"), py::arg("inputs"), py::arg("values"))
      .def("type", &Region::type, py::arg("value"))
      .def(
          "finish", [](Region& region, const std::vector<Value>& outputs) { return region.finish(outputs); },
          py::arg("outputs"));
  m.def("knows_aten", &capture::knows_aten, py::arg("op"));
  m.def("scan_program", &capture::scan_program, py::arg("step"), py::arg("carries"), py::arg("xs"), py::arg("reverse"),
        py::arg("same") = 0, py::arg("drawn") = 0);
  m.def("checkpointed_scan_program", &capture::checkpointed_scan_program, py::arg("step"), py::arg("carries"),
        py::arg("xs"), py::arg("reverse"));
  for (auto [name, compose] : {std::pair("while_program", &capture::while_program),
                               std::pair("bounded_while_program", &capture::bounded_while_program)})
    m.def(name, compose, py::arg("condition"), py::arg("body"), py::arg("carries"), py::arg("captured_by_condition"),
          py::arg("captured_by_body"));
  m.def("cond_program", &capture::cond_program, py::arg("yes"), py::arg("no"), py::arg("operands"),
        py::arg("captured_by_yes"), py::arg("captured_by_no"));
  m.def(
      "partition",
      [](std::vector<std::vector<int64_t>> waits, std::vector<bool> is_member, std::vector<bool> is_call) {
        return capture::partition({std::move(waits), std::move(is_member), std::move(is_call)});
      },
      py::arg("waits"), py::arg("is_member"), py::arg("is_call"), py::call_guard<py::gil_scoped_release>());
  m.def("is_elementwise", &capture::is_elementwise, py::arg("text"));
  m.def("has_symbolic_weights", &capture::has_symbolic_weights, py::arg("text"));
  m.def("keep_outputs", &capture::keep_outputs, py::arg("text"), py::arg("keep"));
}

}  // namespace weft::bindings
