// Regions of ATen graphs as programs, for weft.backend.

#include <fmt/format.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/program.h"
#include "importer/aten_ops.h"
#include "importer/compose.h"
#include "importer/compose_control.h"
#include "importer/partition.h"
#include "importer/region.h"
#include "ir/type.h"
#include "record/traits.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

using Composed = ir::Program (*)(ir::Program, ir::Program, int64_t, int64_t, int64_t);

/// Defines a function that composes two programs, which share a number of inputs and have captured others each.
void define_pair(py::module_& m, const char* name, Composed compose, const char* first, const char* second,
                 const char* shared) {
  m.def(
      name,
      [compose](const Program& one, const Program& other, int64_t count, int64_t by_one, int64_t by_other) {
        return Program(compose(*one, *other, count, by_one, by_other));
      },
      py::arg(first), py::arg(second), py::arg(shared), py::arg(fmt::format("captured_by_{}", first).c_str()),
      py::arg(fmt::format("captured_by_{}", second).c_str()));
}

}  // namespace

void init_importer(py::module_& m) {
  using importer::Region;
  using importer::Value;
  py::class_<Value>(m, "Value");
  py::class_<importer::Unknown>(m, "Unknown").def(py::init<>());
  py::class_<ir::Type>(m, "Type")
      .def(py::init(&importer::make_type), py::arg("dtype"), py::arg("sizes"))
      .def("__str__", [](const ir::Type& type) { return ir::to_string(type); });
  py::class_<Region>(m, "Region")
      .def(py::init<>())
      .def("input", &Region::input, py::arg("type"))
      .def(
          "inline_program",
          [](Region& region, const Program& program, const std::vector<Value>& inputs) {
            return region.inline_program(*program, inputs);
          },
          py::arg("program"), py::arg("inputs"))
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
          "finish", [](Region& region, const std::vector<Value>& outputs) { return Program(region.finish(outputs)); },
          py::arg("outputs"));
  m.def("knows_aten", &importer::knows_aten, py::arg("op"));
  py::class_<record::Traits>(m, "Traits")
      .def_property_readonly("is_view", &record::Traits::is_view)
      .def_property_readonly("changes_something", &record::Traits::changes_something)
      .def_readonly("draws", &record::Traits::draws);
  m.def(
      "traits_of",
      [](const std::string& name, const std::string& overload) {
        return record::traits_of(c10::Dispatcher::singleton().findSchemaOrThrow(
            name.c_str(), overload == "default" ? "" : overload.c_str()));
      },
      py::arg("name"), py::arg("overload"));
  m.def(
      "scan_program",
      [](const Program& step, int64_t carries, int64_t xs, bool reverse, int64_t same, int64_t drawn) {
        return Program(importer::scan_program(*step, carries, xs, reverse, same, drawn));
      },
      py::arg("step"), py::arg("carries"), py::arg("xs"), py::arg("reverse"), py::arg("same") = 0,
      py::arg("drawn") = 0);
  m.def(
      "checkpointed_scan_program",
      [](const Program& step, int64_t carries, int64_t xs, bool reverse) {
        return Program(importer::checkpointed_scan_program(*step, carries, xs, reverse));
      },
      py::arg("step"), py::arg("carries"), py::arg("xs"), py::arg("reverse"));
  define_pair(m, "while_program", &importer::while_program, "condition", "body", "carries");
  define_pair(m, "bounded_while_program", &importer::bounded_while_program, "condition", "body", "carries");
  define_pair(m, "cond_program", &importer::cond_program, "yes", "no", "operands");
  m.def(
      "partition",
      [](std::vector<std::vector<int64_t>> waits, std::vector<bool> is_member, std::vector<bool> is_call) {
        return importer::partition({std::move(waits), std::move(is_member), std::move(is_call)});
      },
      py::arg("waits"), py::arg("is_member"), py::arg("is_call"), py::call_guard<py::gil_scoped_release>());
  m.def(
      "is_elementwise", [](const Program& program) { return importer::is_elementwise(*program); }, py::arg("program"));
  m.def(
      "has_symbolic_weights", [](const Program& program) { return importer::has_symbolic_weights(*program); },
      py::arg("program"));
  m.def(
      "keep_outputs",
      [](const Program& program, const std::vector<bool>& keep) {
        return Program(importer::keep_outputs(*program, keep));
      },
      py::arg("program"), py::arg("keep"));
}

}  // namespace weft::bindings
