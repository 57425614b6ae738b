#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/codegen.h"

namespace weft::jit {

/// An object file, compiled or from the cache.
struct Object {
  std::string bytes;
  bool from_cache = false;
  int64_t instructions = 0;  ///< LLVM instructions handed to code generation
};

/// An object for each module, for the active ISA: from the object cache, or else compiled and stored there. Several are
/// compiled at a time, by as many threads as there are cores, which have ended when it returns. `dump`: a path without
/// ending, to which .ll, .opt.ll and .s are added; then there is one module, and the cache is not read. User's error if
/// LLVM refuses.
std::vector<Object> compile_modules(std::vector<codegen::StageModule> modules, const std::string& dump);

}  // namespace weft::jit
