#pragma once

#include <torch/csrc/utils/pybind.h>

#include "programs/imported_run.h"

namespace weft::bindings {

/// A function of (name, arguments in the schema's order) that gives the operation's results, or NotImplemented.
decltype(programs::Callbacks::decompose) decompose_with(pybind11::function function);

}  // namespace weft::bindings
