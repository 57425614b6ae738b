#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "runtime/kernels/kernels.h"

namespace weft::jit {

/// LLVM's CPU and features for an ISA: the host's own for the best ISA of the host, a generic CPU for an ISA that was
/// forced.
struct Target {
  std::string cpu, features;
};
const Target& target_of(runtime::Isa isa);

/// What machine code depends on beside the module and the target: a part of the object cache's key.
struct Options {
  const char* pipeline = "early-cse,loop-mssa(licm)";  ///< passes over a function, as LLVM's `opt` names them
  /// Passes of code generation that are left out, since no loop here got faster by them. Addresses are computed outside
  /// loops already, and an out-of-order processor schedules by itself. Some passes handle code that isn't emitted here
  /// (tiles, debug information), but run their analyses all the same.
  const char* without =
      "loop-reduce,machine-scheduler,post-RA-sched,x86-domain-reassignment,x86-cmov-conversion,"
      "early-tailduplication,tailduplication,opt-phis,early-ifcvt,machine-combiner,"
      "consthoist,stack-coloring,localstackalloc,lrshrink,shrink-wrap,postra-machine-sink,machine-latecleanup,"
      "x86-optimize-LEAs,x86-avoid-SFB,break-false-deps,regallocscoringpass,tilepreconfig,tileconfig,lowertilecopy,"
      "removeredundantdebugvalues,livedebugvalues,stackmap-liveness,machine-sanmd,stack-frame-layout";
  /// Passes for code that isn't emitted here, or that nobody asked for: tiles, integers and conversions of more than
  /// 128 bits, garbage collection, exceptions, profiles, vector libraries, guards against speculation. Machine code is
  /// the same without them, and a small module compiles a tenth faster. By argument, or by name where a pass has no
  /// argument.
  const char* without_for_others =
      "lower-amx-intrinsics,lower-amx-type,expand-large-div-rem,expand-large-fp-convert,mergeicmps,expand-memcmp,"
      "gc-lowering,shadow-stack-gc-lowering,gc-analysis,replace-with-veclib,partially-inline-libcalls,expandvp,"
      "post-inline-ee-instrument,tlshoist,interleaved-access,x86-partial-reduction,indirectbr-expand,dwarf-eh-prepare,"
      "callbrprepare,safe-stack,canon-freeze,x86-slh,x86-lvi-load,x86-lvi-ret,x86-seses,x86-return-thunks,kcfi,"
      "fixup-statepoint-caller-saved,fentry-insert,xray-instrumentation,patchable-function,funclet-layout,"
      "pseudo-probe-inserter,unpack-mi-bundles,X86 Windows Fixup Buffer Security Check,X86 Indirect Branch Tracking,"
      "X86 Indirect Thunks,X86 Atom pad short functions,X86 Discriminate Memory Operands,X86 Insert Cache Prefetches";
  /// Passes left out where there are 16 vector registers: constants that they move out of a loop would be spilled, and
  /// read from memory in the loop. The 32 registers of AVX-512 hold them. (By llvm-mca for Zen 4, a vector of an LSTM
  /// of 64 units takes 81 cycles with them, 105 without.)
  const char* without_in_few_registers = "early-machinelicm,machinelicm";
  llvm::CodeGenOptLevel level = llvm::CodeGenOptLevel::Default;
  llvm::FPOpFusion::FPOpFusionMode fusion = llvm::FPOpFusion::Standard;
};
inline constexpr Options kOptions;

/// Keeps a machine for the next module of its target, instead of freeing it.
struct KeepMachine {
  const Target* target;
  void operator()(llvm::TargetMachine* machine) const;
};
using Machine = std::unique_ptr<llvm::TargetMachine, KeepMachine>;

/// A machine for one module at a time. An idle one that has compiled a module before is preferred: a new machine takes
/// a millisecond for the tables of its CPU. `target` comes from target_of. User's error with LLVM's words when LLVM has
/// no such machine.
Machine machine_of(const Target& target);

/// Runs the short pipeline before code generation: early CSE and loop-invariant code motion only (an instruction costs
/// some 30 us, most of it in code generation).
void optimise(llvm::Module& module, llvm::TargetMachine& machine);

/// An object file's bytes, or assembly text. User's error with LLVM's words when LLVM can't emit it.
std::string emit(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind);

}  // namespace weft::jit
