#pragma once

#include <optional>

#include "ir/program.h"

namespace weft::passes {

/// A program without the calls of PyTorch that follow from its constants alone, and those calls.
struct ConstantCalls {
  ir::Program calls;  ///< (constants) -> results of the calls
  ir::Program rest;   ///< (what it took, results of the calls) -> what it gave
};

/// Takes calls of PyTorch that read nothing but constants out of a program, so that they can be run once, where PyTorch
/// is. `first`: the program's inputs from this one on are its constants. None where there is no such call.
std::optional<ConstantCalls> constant_calls(const ir::Program& program, size_t first);

}  // namespace weft::passes
