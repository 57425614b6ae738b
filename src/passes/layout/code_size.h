#pragma once

#include "ir/program.h"

namespace weft::passes {

/// About how many LLVM instructions one element of a fused op is (codegen/pointwise.cpp, vector_math.cpp), what it
/// reads from memory and stores there not counted. Compile time goes by it.
int64_t code_size(const ir::Program& program, const ir::Op& op);

}  // namespace weft::passes
