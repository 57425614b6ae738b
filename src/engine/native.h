#pragma once

#include <chrono>
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

/// Counts in stats() a program that a call has waited for since `start`.
void count(const NativeResult& compiled, std::chrono::steady_clock::time_point start);

}  // namespace weft::engine
