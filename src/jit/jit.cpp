#include "jit/jit.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/fork.h"
#include "base/target.h"
#include "base/thread_sanitizer.h"
#include "codegen/codegen.h"
#include "jit/instrument.h"
#include "jit/objects.h"
#include "jit/target.h"
#include "runtime/kernels/scalar_math.h"

namespace weft::jit {
namespace {

using llvm::orc::LLJIT;

/// Any thread in LLVM is counted here, or holds the linker's lock. LLVM has locks that a fork cannot take: those of its
/// static objects, and of functions that it initialises at their first use. Threads compile at the same time, each a
/// module with a context of its own. Never destroyed: programs may be compiled and freed while the process exits.
ForkGate& compiler = *new ForkGate(LockRank::kCompiler);

/// Guards the ORC session. A fork takes it, so no thread holds an LLVM lock while the process forks.
std::mutex& linker_mutex = hold_across_fork(*new std::mutex, LockRank::kLinker);

std::string message_of(llvm::Error error) { return llvm::toString(std::move(error)); }

template <typename T>
T unwrap(llvm::Expected<T> value) {
  if (!value) user_error("weft: LLVM refused the program: {}", message_of(value.takeError()));
  return std::move(*value);
}

template <typename T>
T& unwrap(llvm::Expected<T&> value) {
  if (!value) user_error("weft: LLVM refused the program: {}", message_of(value.takeError()));
  return *value;
}

void unwrap(llvm::Error error) {
  if (error) user_error("weft: LLVM refused the program: {}", message_of(std::move(error)));
}

void define(llvm::orc::SymbolMap& symbols, LLJIT& jit, const std::string& name, const void* address) {
  symbols[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
}

/// Defines the products of each number of vectors, as `name`_1, `name`_2 and so on.
void define_products(llvm::orc::SymbolMap& symbols, LLJIT& jit, const std::string& name,
                     const runtime::ProductKernel* products) {
  for (int64_t vectors = 1; vectors <= target::kMaxPanelUnits; ++vectors)
    define(symbols, jit, fmt::format("{}_{}", name, vectors), reinterpret_cast<void*>(products[vectors]));
}

/// The functions that machine code may call: the micro-kernels of the active ISA and the runtime's functions. Nothing
/// else resolves, apart from the few C functions that LLVM itself calls.
llvm::orc::SymbolMap runtime_symbols(LLJIT& jit) {
  llvm::orc::SymbolMap symbols;
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const runtime::DTypeKernels& kernels = runtime::kernels(runtime::active_isa(), dtype);
    define(symbols, jit, fmt::format("weft_on_the_way_{}", name_of(dtype)),
           reinterpret_cast<void*>(kernels.on_the_way));
    define_products(symbols, jit, fmt::format("weft_product_{}", name_of(dtype)), kernels.product);
  }
  const runtime::PairKernels& pairs = runtime::pair_kernels(runtime::active_isa());
  define(symbols, jit, fmt::format("weft_on_the_way_{}", name_of(DType::kBF16)),
         reinterpret_cast<void*>(pairs.on_the_way));
  define_products(symbols, jit, "weft_product_f32_pairs", pairs.product_f32);
  define_products(symbols, jit, "weft_product_bf16_pairs", pairs.product_bf16);
  for (DType weights : {DType::kF16, DType::kI8}) {
    const runtime::WidenedKernels& widened = runtime::widened_kernels(runtime::active_isa(), weights);
    define(symbols, jit, fmt::format("weft_on_the_way_{}", name_of(weights)),
           reinterpret_cast<void*>(widened.on_the_way));
    define_products(symbols, jit, fmt::format("weft_product_f32_{}", name_of(weights)), widened.product);
  }
  const runtime::ByteRowsKernels& bytes = runtime::byte_rows_kernels(runtime::active_isa());
  define(symbols, jit, "weft_byte_rows_f32", reinterpret_cast<void*>(bytes.f32));
  define(symbols, jit, "weft_byte_rows_i32", reinterpret_cast<void*>(bytes.i32));
  int64_t count = 0;
  const runtime::RuntimeSymbol* functions = runtime::runtime_symbols(&count);
  for (int64_t i = 0; i < count; ++i) define(symbols, jit, functions[i].name, functions[i].address);
  for (const AnnounceSymbol& symbol : announce_symbols()) define(symbols, jit, symbol.name, symbol.address);
  return symbols;
}

std::unique_ptr<LLJIT> make_session() {
  llvm::orc::JITTargetMachineBuilder builder{llvm::Triple(llvm::sys::getProcessTriple())};
  machine_of(target_of(runtime::active_isa()));  // initialises LLVM's targets
  auto made = unwrap(llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(builder)).create());
  auto process =
      unwrap(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(made->getDataLayout().getGlobalPrefix()));
  auto& runtime = unwrap(made->createJITDylib("weft_runtime"));
  runtime.addGenerator(std::move(process));
  unwrap(runtime.define(llvm::orc::absoluteSymbols(runtime_symbols(*made))));
  return made;
}

LLJIT* the_session = nullptr;  // never destroyed

/// The one ORC session of the process. Call and use it under linker_mutex.
LLJIT& session() {
  if (!the_session) the_session = make_session().release();
  return *the_session;
}

class OrcCode : public Code {
 public:
  OrcCode(LLJIT& jit, llvm::orc::JITDylib& library) : jit_(jit), library_(library) {}

  ~OrcCode() override {
    std::lock_guard lock(linker_mutex);
    llvm::consumeError(jit_.getExecutionSession().removeJITDylib(library_));
  }

  runtime::StageFunction function(const std::string& name) const override {
    std::lock_guard lock(linker_mutex);  // the first lookup links
    auto address = jit_.lookup(library_, name);
    if (!address) internal_error("no function {}: {}", name, message_of(address.takeError()));
    return address->toPtr<runtime::StageFunction>();
  }

 private:
  LLJIT& jit_;
  llvm::orc::JITDylib& library_;
};

std::unique_ptr<Code> link_objects(const std::vector<std::string>& objects) {
  static std::atomic<int64_t> serial{0};
  const std::lock_guard lock(linker_mutex);
  LLJIT& jit = session();
  auto& library = unwrap(jit.createJITDylib(fmt::format("program_{}", serial++)));
  library.addToLinkOrder(*jit.getJITDylibByName("weft_runtime"));
  for (const std::string& object : objects)
    if (auto error = jit.addObjectFile(library, llvm::MemoryBuffer::getMemBufferCopy(object))) {
      llvm::consumeError(jit.getExecutionSession().removeJITDylib(library));
      unwrap(std::move(error));
    }
  return std::make_unique<OrcCode>(jit, library);
}

}  // namespace

Compiled compile(planning::Schedule& schedule, const std::string& dump) {
  const ForkGate::Stay stay(compiler);
  Compiled result;
  std::vector<codegen::StageModule> modules = codegen::generate(schedule, !dump.empty());
  if (modules.empty()) return result;
  // Accesses are announced before the cache's keys are made, so that objects with announcements have keys of their own.
  if (kThreadSanitizer)
    for (const codegen::StageModule& each : modules) announce_accesses(*each.module, schedule.program->name);
  std::vector<Object> objects = compile_modules(std::move(modules), dump);
  result.from_cache = std::ranges::all_of(objects, &Object::from_cache);
  for (Object& object : objects) {
    result.instructions += object.instructions;
    result.objects.push_back(std::move(object.bytes));
  }
  result.code = link_objects(result.objects);
  return result;
}

std::unique_ptr<Code> link(const std::vector<std::string>& objects) {
  if (objects.empty()) return nullptr;
  const ForkGate::Stay stay(compiler);
  return link_objects(objects);
}

void while_no_fork(const std::function<void()>& work) {
  const ForkGate::Stay stay(compiler);
  work();
}

}  // namespace weft::jit
