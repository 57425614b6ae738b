#include "bindings/captured.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>

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

namespace {

std::vector<Captured::Inputs> inputs_of(const CapturedTable::Runs& runs) {
  std::vector<Captured::Inputs> inputs;
  for (const record::Recording* run : runs) inputs.push_back(run->input_types());
  return inputs;
}

/// Adds the sizes in which a run's inputs differ from those of another run.
void add_differing(const Captured::Inputs& now, const Captured::Inputs& before, std::vector<Widening::Size>& sizes) {
  for (size_t input = 0; input < std::min(now.size(), before.size()); ++input) {
    const std::vector<int64_t>& shape = now[input].second;
    for (size_t dim = 0; dim < std::min(shape.size(), before[input].second.size()); ++dim) {
      const int64_t other = before[input].second[dim];
      const auto is_it = [&](const Widening::Size& size) { return size.input == input && size.dim == dim; };
      if (shape[dim] == other || shape[dim] < 2 || other < 2 || std::ranges::any_of(sizes, is_it)) continue;
      sizes.push_back({input, dim, other});
    }
  }
}

}  // namespace

std::shared_ptr<Widening> CapturedTable::widening(const py::object& key, const Runs& runs) {
  auto found = std::make_shared<Widening>();
  found->sizes.resize(runs.size());
  const std::vector<Captured::Inputs> inputs = inputs_of(runs);
  for (const auto& entry : table_.alike(structure(key, runs))) {
    if (!entry->value.key.equal(key)) continue;
    for (size_t i = 0; i < runs.size(); ++i) add_differing(inputs[i], entry->value.inputs.at(i), found->sizes[i]);
  }
  std::vector<std::pair<size_t, size_t>> places;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const Widening::Size& size : found->sizes[i]) places.emplace_back(i << 16U | size.input, size.dim);
  if (places.empty()) return nullptr;
  std::ranges::sort(places);
  found->attempts = table_.attempts(structure(key, runs), places);
  return found->attempts->are_worth_it(false) ? found : nullptr;
}

void CapturedTable::put(const py::object& key, const py::object& extra, const Runs& runs,
                        const std::vector<std::shared_ptr<record::Template>>& templates, const py::object& program,
                        size_t bytes) {
  Table::Patterns patterns(templates.begin(), templates.end());
  const auto dropped = table_.put(std::make_shared<Table::Entry>(
      Table::Entry{structure(key, runs), std::move(patterns), {key, extra, program, inputs_of(runs)}, bytes}));
}

void CapturedTable::clear() { const Table before = std::exchange(table_, Table(table_.bounds())); }

uint64_t CapturedTable::structure(const py::object& key, const Runs& runs) {
  auto hash = static_cast<uint64_t>(py::hash(key));
  for (const record::Recording* run : runs) hash = (hash ^ run->record().structure()) * 0x9E3779B97F4A7C15U;
  return hash;
}

void init_captured(py::module_& m) {
  py::class_<Widening, std::shared_ptr<Widening>>(
      m, "Widening", "Sizes in which runs differ from others, for which there might be one program.")
      .def_property_readonly(
          "sizes",
          [](const Widening& widening) {
            std::vector<std::vector<std::tuple<size_t, size_t, int64_t>>> sizes;
            for (const auto& of_run : widening.sizes) {
              sizes.emplace_back();
              for (const auto& size : of_run) sizes.back().emplace_back(size.input, size.dim, size.before);
            }
            return sizes;
          },
          "By run: (input, dim, the size in another run)s.");
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
      .def("widening", &CapturedTable::widening, py::arg("key"), py::arg("runs"),
           "What to make symbols of, since runs of this key had other sizes there; None if that isn't worth its time.")
      .def("put", &CapturedTable::put, py::arg("key"), py::arg("extra"), py::arg("runs"), py::arg("templates"),
           py::arg("program"), py::arg("bytes"))
      .def("clear", &CapturedTable::clear)
      .def_property_readonly("bytes", [](const CapturedTable& captured) { return captured.table().bytes(); })
      .def_property_readonly("most", [](const CapturedTable& captured) { return captured.table().bounds().entries; })
      .def("__len__", [](const CapturedTable& captured) { return captured.table().size(); });
}

}  // namespace weft::bindings
