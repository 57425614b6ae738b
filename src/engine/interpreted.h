#pragma once

#include <memory>

#include "engine/engine.h"

namespace weft::engine {

/// A program that runs through the interpreter: the oracle, and what is left where there is no machine code.
std::shared_ptr<const Executable> interpreted(ir::Program program);

}  // namespace weft::engine
