#pragma once

#include "ir/program.h"

namespace weft::passes {

/// About how many LLVM instructions a fused op takes (codegen/pointwise.cpp, vector_math.cpp), without its loads and
/// stores. Compile time grows with it.
int64_t code_size(const ir::Program& program, const ir::Op& op);

}  // namespace weft::passes
