#include "packages/package.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ArchiveWriter.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "codegen/isa.h"
#include "packages/choice.h"
#include "packages/emit/emitter.h"
#include "packages/functions.h"

namespace weft::packages {
namespace {

// Registers for what the emitter keeps in variables, one copy of each address, loads and constants outside of loops.
constexpr const char* kPipeline = "sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,loop-mssa(licm),gvn,dce";

void initialise_targets() {
  static std::once_flag once;
  std::call_once(once, [] {
#define WEFT_TARGET(name)             \
  LLVMInitialize##name##TargetInfo(); \
  LLVMInitialize##name##Target();     \
  LLVMInitialize##name##TargetMC();   \
  LLVMInitialize##name##AsmPrinter();
    WEFT_TARGET(X86)
    WEFT_TARGET(AArch64)
    WEFT_TARGET(RISCV)
    WEFT_TARGET(ARM)
    WEFT_TARGET(WebAssembly)
#undef WEFT_TARGET
    LLVMInitializeX86AsmParser();  // for compile_choice
  });
}

std::unique_ptr<llvm::TargetMachine> machine_of(const Target& target) {
  initialise_targets();
  const std::string triple(target.triple);
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  check(found != nullptr, "weft.package: LLVM has no code generator for {}: {}", target.name, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  options.FunctionSections = options.DataSections = true;
  options.MCOptions.ABIName = std::string(target.abi);
  if (target.hard_floats) options.FloatABIType = llvm::FloatABI::Hard;
  const auto relocation = target.fixed_addresses ? llvm::Reloc::Static : llvm::Reloc::PIC_;
  std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
      triple, target.cpu, target.features, options, relocation, std::nullopt, llvm::CodeGenOptLevel::Default, false));
  check(machine != nullptr, "weft.package: LLVM cannot generate code for {}", target.name);
  return machine;
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
  auto error = builder.parsePassPipeline(passes, kPipeline);
  internal_check(!error, "LLVM refuses the pipeline {}", kPipeline);
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, functions);
}

std::string emit(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  check(!machine.addPassesToEmitFile(passes, stream, nullptr, kind), "weft.package: LLVM cannot write machine code");
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

/// The object, and its assembly text if `assembly` isn't null. Internal error for invalid IR.
std::string finish(llvm::Module& module, llvm::TargetMachine& machine, std::string* assembly) {
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  internal_check(!llvm::verifyModule(module, &stream), "LLVM's verifier: {}", problems);
  optimise(module, machine);
  if (assembly != nullptr) *assembly = emit(*llvm::CloneModule(module), machine, llvm::CodeGenFileType::AssemblyFile);
  return emit(module, machine, llvm::CodeGenFileType::ObjectFile);
}

/// User's error if the object calls a function that the package doesn't have. LLVM inserts such calls where a processor
/// has no instruction, as for f64 on a processor with f32 alone.
void check_needs_nothing(const std::string& object, const Target& target) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "package"));
  internal_check(static_cast<bool>(file), "LLVM cannot read what it wrote: {}", llvm::toString(file.takeError()));
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    const uint32_t flags = llvm::cantFail(symbol.getFlags());
    const llvm::StringRef name = llvm::cantFail(symbol.getName());
    const bool is_missing = (flags & llvm::object::SymbolRef::SF_Undefined) != 0 && !name.empty();
    const bool is_linkers = name == "_fltused" || name == "_GLOBAL_OFFSET_TABLE_" || name == "__stack_pointer" ||
                            name == "__linear_memory" || name == "__indirect_function_table";
    check(!is_missing || is_linkers,
          "weft.package: on {} the step needs {}, a function of the compiler's library, since the processor has no "
          "instruction for something in it (float64, or 64-bit integers); write it without, or leave this target out",
          target.name, name.str());
  }
}

/// Removes a function that nothing calls, with the functions and the data that it alone uses.
void remove(llvm::Function* function, llvm::Module& module) {
  while (function != nullptr) {
    llvm::Function* next = nullptr;  // with a call of which it ends
    for (const llvm::BasicBlock& block : *function)
      if (const auto* end = llvm::dyn_cast<llvm::ReturnInst>(block.getTerminator()))
        if (const auto* call = llvm::dyn_cast<llvm::CallInst>(end->getReturnValue())) next = call->getCalledFunction();
    function->eraseFromParent();
    function = next;
  }
  for (llvm::GlobalVariable& data : llvm::make_early_inc_range(module.globals()))
    if (data.use_empty()) data.eraseFromParent();
}

}  // namespace

Object compile(const StepModel& model, const Target& target, bool assembly, Parts parts) {
  const size_t results = model.program.body.results.size();
  internal_check(model.state_names.size() == model.states.size() && model.input_names.size() == model.inputs.size() &&
                     model.state_names.size() + model.output_names.size() == results,
                 "{} names of states and {} of outputs for {} results", model.state_names.size(),
                 model.output_names.size(), results);
  const auto machine = machine_of(target);
  llvm::LLVMContext context;
  llvm::Module module(model.name, context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  if (!target.fixed_addresses) module.setPICLevel(llvm::PICLevel::BigPIC);
  if (!target.abi.empty())
    module.addModuleFlag(llvm::Module::Error, "target-abi", llvm::MDString::get(context, target.abi));
  codegen::set_vector_isa(module, {.avx512 = target.avx512, .f16c = target.f16c, .fused = target.fused});
  const Bound step(model);
  const Plan plan = plan_of(step, target.steps);
  const StoredWeights weights(step, model.stored);
  Emitter emitter(step, plan, weights, target, module);
  llvm::Function* one = emitter.emit_step(model.name + "_one_step");
  llvm::Function* several = emitter.emit_steps(model.name + "_steps");
  Object object;
  if (parts == Parts::kSingleSteps && several != nullptr) {
    remove(std::exchange(several, nullptr), module);
    object.is_whole = false;
    machine->setOptLevel(llvm::CodeGenOptLevel::Less);  // the whole object is about to replace it
  }
  const StepFunctions functions{one, several, plan.steps};
  const Facts facts = emit_model(model, step, target, functions, emitter.memory(), module);
  for (llvm::Function& each : module) {
    each.addFnAttr(llvm::Attribute::NoUnwind);
    each.addFnAttr("target-cpu", target.cpu);
    if (!target.features.empty()) each.addFnAttr("target-features", target.features);
    if (!each.hasLocalLinkage()) continue;
    each.setDSOLocal(true);
  }
  object.fingerprint = facts.fingerprint;
  object.state_bytes = facts.state_bytes;
  object.state_align = facts.state_align;
  object.saved_bytes = facts.saved_bytes;
  object.weights = weights.count();
  object.weight_bytes = weights.bytes();
  object.bytes = finish(module, *machine, assembly ? &object.assembly : nullptr);
  check_needs_nothing(object.bytes, target);
  return object;
}

std::string compile_choice(std::string_view name, const std::vector<std::string>& names) {
  std::vector<const Target*> choices;
  for (const std::string& each : names) choices.push_back(&find_target(each));
  check(!choices.empty() && choices[0]->architecture == "x86_64",
        "weft.package: nothing tells targets of {} apart at run time: a library has one of them",
        choices.empty() ? "no architecture" : choices[0]->architecture);
  const auto machine = machine_of(find_target("x86-64"));
  llvm::LLVMContext context;
  llvm::Module module(name, context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);
  emit_choice(std::string(name), choices, module);
  return finish(module, *machine, nullptr);
}

std::string archive(const std::vector<std::pair<std::string, std::string>>& members, std::string_view architecture) {
  using Kind = llvm::object::Archive::Kind;
  const Kind kind = architecture.ends_with("macos")     ? llvm::object::Archive::K_DARWIN
                    : architecture.ends_with("windows") ? llvm::object::Archive::K_COFF
                                                        : llvm::object::Archive::K_GNU;
  std::vector<llvm::NewArchiveMember> all;
  for (const auto& [name, bytes] : members) {
    llvm::NewArchiveMember member;
    member.Buf = llvm::MemoryBuffer::getMemBufferCopy(bytes, name);
    member.MemberName = member.Buf->getBufferIdentifier();
    all.push_back(std::move(member));
  }
  auto buffer = llvm::writeArchiveToBuffer(all, llvm::SymtabWritingMode::NormalSymtab, kind, true, false);
  internal_check(static_cast<bool>(buffer), "LLVM cannot write an archive: {}", llvm::toString(buffer.takeError()));
  return (*buffer)->getBuffer().str();
}

}  // namespace weft::packages
