#include "bindings/bindings.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "The compiled half of weft. Loading it registers weft::call and the kernels of aten::gru and its kin.";
  weft::bindings::init_capture(m);
  m.attr("__version__") = WEFT_VERSION;
  weft::bindings::init_override(m);
  weft::bindings::init_warnings(m);
  weft::bindings::init_programs(m);
  weft::bindings::init_recorder(m);
  weft::bindings::init_known_scans(m);
  weft::bindings::init_lowering(m);
  weft::bindings::init_device(m);
  weft::bindings::init_stablehlo(m);
}
