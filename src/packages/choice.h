#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

#include "packages/target.h"

namespace weft::packages {

/// Emits `<name>_model`, which returns the model of the first of these targets that the processor can run. The targets
/// are of x86-64, the best first; the last one is taken without a check. It asks the processor itself (cpuid), not the
/// operating system.
void emit_choice(const std::string& name, const std::vector<const Target*>& targets, llvm::Module& module);

}  // namespace weft::packages
