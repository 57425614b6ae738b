#pragma once

#include <memory>
#include <string>

#include "planning/schedule.h"

namespace weft::jit {

/// Machine code of one program; the memory is freed with it.
class Code {
 public:
  virtual ~Code() = default;
  /// The function of that name; internal error if there is none.
  virtual runtime::StageFunction function(const std::string& name) const = 0;
};

struct Compiled {
  std::unique_ptr<Code> code;
  bool from_cache = false;
  int64_t instructions = 0;  ///< LLVM instructions handed to code generation
};

/// Machine code of a schedule for the active ISA, from the object cache if it is there. Fills schedule.plan.dims.
/// User's error with LLVM's message if LLVM refuses. `dump`: a path without ending, to which .ll, .opt.ll and .s are
/// added; or empty.
Compiled compile(planning::Schedule& schedule, const std::string& dump);

}  // namespace weft::jit
