#pragma once

#include <pybind11/pybind11.h>

#include <concepts>
#include <memory>
#include <vector>

#include "programs/record_table.h"
#include "record/recording.h"

namespace weft::bindings {

/// A program, and what it depends on in addition to records. `program` is a weft._capture.programs.Captured.
struct Captured {
  using Inputs = std::vector<std::pair<at::ScalarType, std::vector<int64_t>>>;

  pybind11::object key, extra, program;
  std::vector<Inputs> inputs;  ///< by run: the types of its inputs
};

/// weft._C.Widening: the sizes in which runs differ from other runs of the same structure. One program might serve all
/// of them.
struct Widening {
  struct Size {
    size_t input, dim;
    int64_t before;  ///< the size in another run
  };
  std::vector<std::vector<Size>> sizes;  ///< by run
  std::shared_ptr<programs::Attempts> attempts;
};

/// Programs of steps, found by what the steps did: for Python, and for scans that are called again. All calls hold the
/// GIL. Comparing keys may release it, and freeing dropped entries may call the table.
class CapturedTable {
 public:
  using Table = programs::RecordTable<Captured>;
  using Runs = std::vector<record::Recording*>;

  CapturedTable();

  /// Null if there is no program. `fits` is called for entries with an equal key.
  template <std::predicate<const Captured&> Fits>
  Table::Reference find(const pybind11::object& key, const Runs& runs, Fits fits) {
    std::vector<const record::Record*> records;
    for (const record::Recording* run : runs) records.push_back(&run->record());
    return table_.find(structure(key, runs), records,
                       [&](const Table::Entry& entry) { return entry.value.key.equal(key) && fits(entry.value); });
  }

  std::vector<pybind11::object> alike(const pybind11::object& key, const Runs& runs) const;
  /// Null where the inputs have the sizes of earlier runs, or where earlier attempts failed.
  std::shared_ptr<Widening> widening(const pybind11::object& key, const Runs& runs);
  void put(const pybind11::object& key, const pybind11::object& extra, const Runs& runs,
           const std::vector<std::shared_ptr<record::Template>>& templates, const pybind11::object& program,
           size_t bytes);
  void clear();

  const Table& table() const { return table_; }

 private:
  static uint64_t structure(const pybind11::object& key, const Runs& runs);

  Table table_;
};

}  // namespace weft::bindings
