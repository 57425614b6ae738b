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

/// Machine code of a schedule for the active ISA, from the object cache if it holds it. Fills schedule.plan.dims.
/// User's error when LLVM refuses, with what it said. `dump` (a path without ending, or empty) gets .ll, .opt.ll and
/// .s.
Compiled compile(planning::Schedule& schedule, const std::string& dump);

/// The row counts that the active ISA's micro-kernels like best.
planning::TileRows tile_rows();

}  // namespace weft::jit
