#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  std::unique_ptr<Code> code;        ///< null if no stage is machine code
  std::vector<std::string> objects;  ///< what `code` was linked from
  bool from_cache = false;
  int64_t instructions = 0;  ///< LLVM instructions handed to code generation
};

/// Machine code of a schedule for the active ISA, from the object cache if it is there. Fills schedule.plan.dims.
/// User's error with LLVM's message if LLVM refuses. `dump`: a path without ending, to which .ll, .opt.ll and .s are
/// added; or empty.
Compiled compile(planning::Schedule& schedule, const std::string& dump);

/// Machine code from the objects of a program compiled before, by this build for this target; null if there are none.
std::unique_ptr<Code> link(const std::vector<std::string>& objects);

/// Does work of another phase that uses LLVM. No fork comes in between.
void while_no_fork(const std::function<void()>& work);

/// What machine code depends on beside its module, in words: versions, options, and LLVM's CPU and features for the
/// active ISA.
std::string code_options();

}  // namespace weft::jit
