#pragma once

#include <pybind11/pybind11.h>

namespace weft::bindings {

/// Each adds an area's functions to weft._C.
void init_importer(pybind11::module_& m);
void init_captured(pybind11::module_& m);
void init_device(pybind11::module_& m);
void init_generaliser(pybind11::module_& m);
void init_known_scans(pybind11::module_& m);
void init_program_of_runs(pybind11::module_& m);
void init_override(pybind11::module_& m);
void init_record(pybind11::module_& m);
void init_packages(pybind11::module_& m);
void init_programs(pybind11::module_& m);
void init_stablehlo(pybind11::module_& m);
void init_streaming(pybind11::module_& m);
void init_warnings(pybind11::module_& m);

}  // namespace weft::bindings
