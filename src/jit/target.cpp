#include "jit/target.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/PassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/PassInfo.h>
#include <llvm/PassRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>

#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/fork.h"

namespace weft::jit {
namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

std::string host_features() {
  std::string text;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    text += (text.empty() ? "" : ",") + std::string(feature.second ? "+" : "-") + feature.first().str();
  return text;
}

/// Takes LLVM's passes of code generation except those that kOptions leaves out. LLVM's own switches for these passes
/// would apply to every user of LLVM in this process.
class PassFilter : public llvm::legacy::PassManagerBase {
 public:
  explicit PassFilter(llvm::legacy::PassManagerBase& passes) : passes_(passes) {
    llvm::StringRef(kOptions.without).split(without_, ',');
    llvm::StringRef(kOptions.without_for_others).split(without_, ',');
    if (runtime::vector_isa(runtime::active_isa()) != runtime::Isa::kAvx512)
      llvm::StringRef(kOptions.without_in_few_registers).split(without_, ',');
  }

  void add(llvm::Pass* pass) override {
    const llvm::PassInfo* info = llvm::PassRegistry::getPassRegistry()->getPassInfo(pass->getPassID());
    if (llvm::is_contained(without_, info ? info->getPassArgument() : pass->getPassName()))
      delete pass;
    else
      passes_.add(pass);
  }

 private:
  llvm::legacy::PassManagerBase& passes_;
  llvm::SmallVector<llvm::StringRef> without_;
};

Target new_target(runtime::Isa isa) {
  switch (isa) {
    case runtime::Isa::kAvx512:
      return {llvm::sys::getHostCPUName().str(), host_features()};
    case runtime::Isa::kAvx2:
      return {"haswell", ""};
    case runtime::Isa::kGeneric:
      return {"x86-64", ""};
    default:
      break;
  }
  internal_error("unknown ISA");
}

std::unique_ptr<llvm::TargetMachine> new_machine(const Target& target) {
  initialise_llvm();
  std::string triple = llvm::sys::getProcessTriple(), error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  check(found != nullptr, "weft: LLVM has no code generator for {}: {}", triple, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = kOptions.fusion;
  std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
      triple, target.cpu, target.features, options, llvm::Reloc::PIC_, std::nullopt, kOptions.level, true));
  check(machine != nullptr, "weft: LLVM cannot generate code for {} ({})", triple, target.cpu);
  return machine;
}

// Never destroyed: programs may be compiled while the process exits.

std::mutex& machines_mutex = hold_across_fork(*new std::mutex, LockRank::kMachines);  // guards the two below
auto& targets = *new std::map<runtime::Isa, const Target>;
/// By target: as many machines as were in use at once.
auto& idle_machines = *new std::map<const Target*, std::vector<std::unique_ptr<llvm::TargetMachine>>>;

}  // namespace

const Target& target_of(runtime::Isa isa) {
  isa = runtime::vector_isa(isa);
  const std::lock_guard lock(machines_mutex);
  const auto known = targets.find(isa);
  return known != targets.end() ? known->second : targets.emplace(isa, new_target(isa)).first->second;
}

Machine machine_of(const Target& target) {
  {
    const std::lock_guard lock(machines_mutex);
    auto& idle = idle_machines[&target];
    if (!idle.empty()) {
      Machine machine(idle.back().release(), {&target});
      idle.pop_back();
      return machine;
    }
  }
  return Machine(new_machine(target).release(), {&target});
}

void KeepMachine::operator()(llvm::TargetMachine* machine) const {
  const std::lock_guard lock(machines_mutex);
  idle_machines[target].emplace_back(machine);
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  llvm::FunctionPassManager passes;
  auto error = builder.parsePassPipeline(passes, kOptions.pipeline);
  internal_check(!error, "LLVM refuses the pipeline {}", kOptions.pipeline);
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, functions);
}

std::string emit(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  PassFilter filter(passes);
  bool refused = machine.addPassesToEmitFile(filter, stream, nullptr, kind);
  check(!refused, "weft: LLVM cannot write machine code for this CPU ({})", machine.getTargetCPU().str());
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace weft::jit
