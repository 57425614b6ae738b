#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include "bindings/bindings.h"

namespace {

namespace py = pybind11;

/// Code that imports this module in another way than by weft._base.torch_release may have loaded another release of
/// PyTorch, whose tensors have another layout.
void check_release() {
  const std::string installed = py::str(py::module_::import("torch").attr("__version__"));
  const std::string release = fmt::format("{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
  if (!installed.starts_with(release + "."))
    throw py::import_error(fmt::format(
        "this extension module of weft is built for PyTorch {}, and PyTorch {} is installed", release, installed));
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  check_release();
  m.doc() = "The compiled half of weft. Loading it registers weft::call and the kernels of aten::gru and its kin.";
  m.attr("__version__") = WEFT_VERSION;
  weft::bindings::init_programs(m);
  weft::bindings::init_importer(m);
  weft::bindings::init_override(m);
  weft::bindings::init_warnings(m);
  weft::bindings::init_record(m);
  weft::bindings::init_captured(m);
  weft::bindings::init_known_scans(m);
  weft::bindings::init_generaliser(m);
  weft::bindings::init_program_of_runs(m);
  weft::bindings::init_device(m);
  weft::bindings::init_stablehlo(m);
  weft::bindings::init_streaming(m);
  weft::bindings::init_packages(m);
}
