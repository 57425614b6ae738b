// The device, for weft.device.

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/callbacks.h"
#include "device/backend.h"
#include "device/graph/graph.h"
#include "device/graph/memory.h"
#include "device/graph/places.h"
#include "device/kernels/autocast.h"
#include "device/run/devices_in_use.h"
#include "device/run/programs.h"
#include "device/run/run.h"
#include "device/run/watched_runs.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

py::dict device_stats() {
  const device::ProgramCounts counts = device::program_counts();
  py::dict result;
  result["programs"] = counts.programs;
  result["records"] = counts.records;
  result["widenings"] = counts.widenings;
  result["kept"] = counts.kept;
  result["compiled_batches"] = counts.compiled_batches;
  result["plain_batches"] = counts.plain_batches;
  return result;
}

/// The result of `call`; nothing where Python has an error to raise. Ctrl-C is raised after the call.
template <typename Call>
auto unless_raised(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) PyErr_SetInterrupt();
    return decltype(call())();
  }
}

/// Wraps Python's function that finds places. It may be called until the process ends, so it is never freed.
device::FindPlace find_place_with(py::function function) {
  auto* held = new py::function(std::move(function));
  return [held] { return unless_raised([&] { return (*held)().cast<std::string>(); }); };
}

py::tuple tuple_of(const device::Place& place) { return py::make_tuple(place.file, place.line, place.function); }

/// None ends watching. The functions are never freed, since a thread may be about to call them.
void watch_runs(py::object find_line, bool operations, py::object ended) {
  if (find_line.is_none()) return device::watch_runs(nullptr, false, nullptr);
  auto* finder = new py::object(std::move(find_line));
  device::Ended tell;
  if (!ended.is_none()) {
    auto* listener = new py::object(std::move(ended));
    tell = [listener](const device::Place& place, size_t operations) {
      unless_raised([&] { (*listener)(place.file, place.line, operations); });
    };
  }
  device::watch_runs(
      [finder] {
        return unless_raised([&]() -> device::Place {
          const auto [file, line, function] = (*finder)().cast<std::tuple<std::string, int, std::string>>();
          return {file, line, function};
        });
      },
      operations, std::move(tell));
}

py::list take_watched_runs() {
  constexpr std::array kFound{"new", "compiled", "known", "refused"};
  py::list result;
  for (const device::WatchedRun& run : device::take_watched_runs()) {
    py::dict each;
    each["place"] = tuple_of(run.place);
    each["asked_by"] = run.asked_by;
    each["operations"] = run.operations;
    each["results"] = run.results;
    each["begin"] = run.begin;
    each["end"] = run.end;
    each["compiling"] = run.compiling;
    each["found"] = kFound[static_cast<size_t>(run.found)];
    each["structure"] = run.structure;
    each["differs"] = run.differs;
    each["differs_at"] = tuple_of(run.differs_at);
    result.append(std::move(each));
  }
  return result;
}

py::dict memory() {
  const device::MemoryCounts counts = device::memory_counts();
  py::dict result;
  result["bytes"] = counts.bytes;
  result["most_bytes"] = counts.most_bytes;
  result["storages"] = device::storages();
  result["pending"] = device::pending_nodes();
  return result;
}

}  // namespace

void init_device(py::module_& m) {
  m.def(
      "device_register",
      [](py::function decompose, py::function find_place) {
        device::set_decompose(decompose_with(std::move(decompose)));
        device::set_find_place(find_place_with(std::move(find_place)));
        device::register_backend();
      },
      py::arg("decompose"), py::arg("find_place"),
      "Makes the device known to PyTorch, whose name for it has been set.");
  m.def("device_set_autocast_list", &device::set_autocast_list, py::arg("name"));
  m.def("device_sync", &device::sync, py::call_guard<py::gil_scoped_release>());
  m.def("device_compile_at", &device::set_compile_at, py::arg("sight"));
  m.def("device_longest_record", &device::set_longest_record, py::arg("operations"));
  m.def("device_stats", &device_stats);
  m.def("device_ran_at_once", &device::ran_at_once, "By operation and place in the user's code, how often.");
  m.def("device_forget_ran_at_once", &device::forget_ran_at_once);
  m.def("device_watch_runs", &watch_runs, py::arg("find_line"), py::arg("operations"), py::arg("ended"),
        "From now on runs of pending operations are kept, with their places.");
  m.def("device_take_watched_runs", &take_watched_runs, "Those since the last time.");
  m.def("device_memory", &memory);
  m.def("device_forget_peak", &device::forget_peak);
  m.def("device_may_be_in_a_graph", &device::may_be_in_a_graph,
        "Whether a backward may come to tensors of the device.");
}

}  // namespace weft::bindings
