#pragma once

#include "codegen/frame.h"

namespace weft::codegen {

/// Emits rows first..last-1 of a concatenation along the last dim of parts of unequal width, or of a padding of it.
void emit_row_copy(Frame& frame, const planning::Stage& stage, llvm::Value* first, llvm::Value* last);

}  // namespace weft::codegen
