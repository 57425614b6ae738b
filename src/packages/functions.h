#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "packages/emit/emitter.h"

namespace weft::packages {

/// What a package says of itself beside its code.
struct Facts {
  uint64_t fingerprint = 0;  ///< of the model: a hash of its program and weights
  int64_t state_bytes = 0, state_align = 0, saved_bytes = 0;
};

/// The functions that compute steps: `one` computes one step; `several` computes `at_once` steps, and may be null.
struct StepFunctions {
  llvm::Function *one = nullptr, *several = nullptr;
  int64_t at_once = 1;
};

/// Emits the functions around a step, and the descriptor `weft_model` (weft_model.h) with everything it names. Two
/// functions return the descriptor: `<name>_model_<target>`, and `<name>_model`, a weak symbol.
Facts emit_model(const StepModel& model, const Bound& step, const Target& target, const StepFunctions& steps,
                 const Memory& memory, llvm::Module& module);

/// The number of a model: the same for all targets.
uint64_t fingerprint_of(const StepModel& model);

/// The target's name as a part of an identifier.
std::string suffix_of(const Target& target);

}  // namespace weft::packages
