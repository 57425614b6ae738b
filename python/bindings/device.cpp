// The device, for weft.device.

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/callbacks.h"
#include "device/backend.h"
#include "device/programs.h"
#include "device/run.h"

namespace py = pybind11;

namespace weft::bindings {
namespace {

py::dict stats() {
  const device::ProgramCounts counts = device::program_counts();
  py::dict result;
  result["programs"] = counts.programs;
  result["kept"] = counts.kept;
  result["compiled_batches"] = counts.compiled_batches;
  result["plain_batches"] = counts.plain_batches;
  return result;
}

}  // namespace

void init_device(py::module_& m) {
  m.def(
      "device_register",
      [](py::function decompose) {
        device::set_decompose(decompose_with(std::move(decompose)));
        device::register_backend();
      },
      py::arg("decompose"), "Makes the device known to PyTorch, whose name for it has been set.");
  m.def("device_sync", &device::sync, py::call_guard<py::gil_scoped_release>());
  m.def("device_compile_at", &device::set_compile_at, py::arg("sight"));
  m.def("device_longest_record", &device::set_longest_record, py::arg("operations"));
  m.def("device_stats", &stats);
}

}  // namespace weft::bindings
