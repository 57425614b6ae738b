#include "bindings/captured.h"

#include <pybind11/stl.h>

#include "base/settings.h"
#include "bindings/bindings.h"

namespace py = pybind11;

namespace weft::bindings {

CapturedTable::CapturedTable() : table_({static_cast<size_t>(settings().captured)}) {}

std::vector<py::object> CapturedTable::alike(const py::object& key, const Runs& runs) const {
  std::vector<py::object> programs;
  for (const auto& entry : table_.alike(structure(key, runs)))
    if (entry->value.key.equal(key)) programs.push_back(entry->value.program);
  return programs;
}

void CapturedTable::put(const py::object& key, const py::object& extra, const Runs& runs,
                        const std::vector<std::shared_ptr<recorder::Template>>& templates, const py::object& program,
                        size_t bytes) {
  Table::Patterns patterns(templates.begin(), templates.end());
  const auto dropped = table_.put(std::make_shared<Table::Entry>(
      Table::Entry{structure(key, runs), std::move(patterns), {key, extra, program}, bytes}));
}

void CapturedTable::clear() { const Table before = std::exchange(table_, Table(table_.bounds())); }

uint64_t CapturedTable::structure(const py::object& key, const Runs& runs) {
  auto hash = static_cast<uint64_t>(py::hash(key));
  for (const recorder::Recording* run : runs) hash = (hash ^ run->record().structure()) * 0x9E3779B97F4A7C15U;
  return hash;
}

void init_captured(py::module_& m) {
  py::class_<CapturedTable>(m, "CapturedTable", "Programs by the records of the runs that they were made of.")
      .def(py::init<>())
      .def(
          "find",
          [](CapturedTable& captured, const py::object& key, const py::object& extra, const CapturedTable::Runs& runs) {
            const auto found =
                captured.find(key, runs, [&](const Captured& known) { return known.extra.equal(extra); });
            return found ? found->value.program : py::object(py::none());
          },
          py::arg("key"), py::arg("extra"), py::arg("runs"),
          "The program whose templates the runs are instances of, with an equal key and extra; None if there is none.")
      .def("alike", &CapturedTable::alike, py::arg("key"), py::arg("runs"),
           "Programs of this key whose runs differ in sizes and numbers, or not at all.")
      .def("put", &CapturedTable::put, py::arg("key"), py::arg("extra"), py::arg("runs"), py::arg("templates"),
           py::arg("program"), py::arg("bytes"))
      .def("clear", &CapturedTable::clear)
      .def_property_readonly("bytes", [](const CapturedTable& captured) { return captured.table().bytes(); })
      .def_property_readonly("most", [](const CapturedTable& captured) { return captured.table().bounds().entries; })
      .def("__len__", [](const CapturedTable& captured) { return captured.table().size(); });
}

}  // namespace weft::bindings
