// Programs of steps by what the steps did (weft._capture.programs), in the table that the device has for its batches.

#include <pybind11/stl.h>

#include "base/settings.h"
#include "bindings/bindings.h"
#include "recorder/record_table.h"
#include "recorder/recording.h"

namespace py = pybind11;

namespace weft::bindings {

namespace {

using recorder::Record;
using recorder::Recording;
using recorder::Template;

/// A program, and what it depends on besides the records.
struct Captured {
  py::object key, extra, program;
};

/// Python's view of a table. All calls have the GIL; comparing keys may give it up, and freeing what was dropped may
/// come back here.
class CapturedTable {
 public:
  CapturedTable() : table_({static_cast<size_t>(settings().captured)}) {}

  py::object find(const py::object& key, const py::object& extra, const std::vector<Recording*>& runs) {
    std::vector<const Record*> records;
    for (const Recording* run : runs) records.push_back(&run->record());
    const auto found = table_.find(structure(key, runs), records, [&](const Table::Entry& entry) {
      return entry.value.key.equal(key) && entry.value.extra.equal(extra);
    });
    return found ? found->value.program : py::object(py::none());
  }

  std::vector<py::object> alike(const py::object& key, const std::vector<Recording*>& runs) const {
    std::vector<py::object> programs;
    for (const auto& entry : table_.alike(structure(key, runs)))
      if (entry->value.key.equal(key)) programs.push_back(entry->value.program);
    return programs;
  }

  /// Whether programs were dropped for it.
  bool put(const py::object& key, const py::object& extra, const std::vector<Recording*>& runs,
           const std::vector<std::shared_ptr<Template>>& templates, const py::object& program, size_t bytes) {
    Table::Patterns patterns(templates.begin(), templates.end());
    return !table_
                .put(std::make_shared<Table::Entry>(
                    Table::Entry{structure(key, runs), std::move(patterns), {key, extra, program}, bytes}))
                .empty();
  }

  size_t size() const { return table_.size(); }
  size_t bytes() const { return table_.bytes(); }
  size_t most() const { return table_.bounds().entries; }

 private:
  using Table = recorder::RecordTable<Captured>;

  static uint64_t structure(const py::object& key, const std::vector<Recording*>& runs) {
    auto hash = static_cast<uint64_t>(py::hash(key));
    for (const Recording* run : runs) hash = (hash ^ run->record().structure()) * 0x9E3779B97F4A7C15U;
    return hash;
  }

  Table table_;
};

}  // namespace

void init_captured(py::module_& m) {
  py::class_<CapturedTable>(m, "CapturedTable", "Programs by the records of the runs that they were made of.")
      .def(py::init<>())
      .def("find", &CapturedTable::find, py::arg("key"), py::arg("extra"), py::arg("runs"),
           "The program whose templates the runs are instances of, with an equal key and extra; None if there is none.")
      .def("alike", &CapturedTable::alike, py::arg("key"), py::arg("runs"),
           "Programs of this key whose runs differ in sizes and numbers, or not at all.")
      .def("put", &CapturedTable::put, py::arg("key"), py::arg("extra"), py::arg("runs"), py::arg("templates"),
           py::arg("program"), py::arg("bytes"), "Whether others were dropped for it.")
      .def_property_readonly("bytes", &CapturedTable::bytes)
      .def_property_readonly("most", &CapturedTable::most)
      .def("__len__", &CapturedTable::size);
}

}  // namespace weft::bindings
