#pragma once

#include <memory>

#include "engine/engine.h"

namespace weft::engine {

/// The result of compiling one program.
struct NativeResult {
  std::shared_ptr<const Executable> executable;
  bool from_cache = false;
  int64_t instructions = 0;
};

/// Runs the compile pipeline on a copy of the program, generates machine code and plans buffers.
NativeResult native(ir::Program program);

}  // namespace weft::engine
