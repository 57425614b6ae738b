#pragma once

#include <pybind11/pybind11.h>

#include <concepts>
#include <memory>
#include <vector>

#include "recorder/record_table.h"
#include "recorder/recording.h"

namespace weft::bindings {

/// A program, and what it depends on besides the records. `program` is weft._capture.programs.Captured.
struct Captured {
  pybind11::object key, extra, program;
};

/// Programs of steps by what the steps did, for Python and for scans that are called again. All calls have the GIL;
/// comparing keys may give it up, and freeing what was dropped may come back here.
class CapturedTable {
 public:
  using Table = recorder::RecordTable<Captured>;
  using Runs = std::vector<recorder::Recording*>;

  CapturedTable();

  /// Null if there is none. `fits` is asked of entries with an equal key.
  template <std::predicate<const Captured&> Fits>
  Table::Reference find(const pybind11::object& key, const Runs& runs, Fits fits) {
    std::vector<const recorder::Record*> records;
    for (const recorder::Recording* run : runs) records.push_back(&run->record());
    return table_.find(structure(key, runs), records,
                       [&](const Table::Entry& entry) { return entry.value.key.equal(key) && fits(entry.value); });
  }

  std::vector<pybind11::object> alike(const pybind11::object& key, const Runs& runs) const;
  void put(const pybind11::object& key, const pybind11::object& extra, const Runs& runs,
           const std::vector<std::shared_ptr<recorder::Template>>& templates, const pybind11::object& program,
           size_t bytes);
  void clear();

  const Table& table() const { return table_; }

 private:
  static uint64_t structure(const pybind11::object& key, const Runs& runs);

  Table table_;
};

}  // namespace weft::bindings
