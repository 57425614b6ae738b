#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "runtime/kernels.h"

namespace weft::jit {

/// LLVM's CPU and features for an ISA: the host's own for the best ISA of the host, a generic CPU for an ISA that was
/// forced.
struct Target {
  std::string cpu, features;
};
Target target_of(runtime::Isa isa);

/// Everything beside the module and the target that machine code depends on: a part of the object cache's key.
struct Options {
  const char* pipeline = "early-cse,loop-mssa(licm)";  ///< of a function, in LLVM's words
  /// Passes of code generation that are left out: each takes 2 to 10 % of it, and no loop here got faster by them.
  /// Addresses are computed outside loops already, and an out-of-order processor schedules by itself.
  const char* without = "loop-reduce,machine-scheduler,post-RA-sched,x86-domain-reassignment,x86-cmov-conversion";
  llvm::CodeGenOptLevel level = llvm::CodeGenOptLevel::Default;
  llvm::FPOpFusion::FPOpFusionMode fusion = llvm::FPOpFusion::Standard;
};
inline constexpr Options kOptions;

std::unique_ptr<llvm::TargetMachine> target_machine(const Target& target);

/// Runs the short pipeline before code generation: early CSE and loop-invariant code motion only (an instruction costs
/// some 30 us, most of it in code generation).
void optimise(llvm::Module& module, llvm::TargetMachine& machine);

/// An object file's bytes, or assembly text. User's error with LLVM's words when it cannot.
std::string emit(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind);

}  // namespace weft::jit
