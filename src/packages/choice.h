#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

#include "packages/target.h"

namespace weft::packages {

/// Emits `<name>_model`, which returns the model of the first of these targets that the processor has: targets of
/// x86-64, the best first. The last one counts as there. It asks the processor itself (cpuid), not the system.
void emit_choice(const std::string& name, const std::vector<const Target*>& targets, llvm::Module& module);

}  // namespace weft::packages
