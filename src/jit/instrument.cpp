#include "jit/instrument.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>

#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/thread_sanitizer.h"

namespace weft::jit {
namespace {

/// Program counters with this bit set are not looked up in the process's files but given to __tsan_symbolize_external.
constexpr uint64_t kExternalCode = uint64_t{1} << 60;

/// Names of functions by the program counters that stand for them. The list only grows and is never freed: it is read
/// in the middle of a report, where no lock may be taken.
struct FunctionName {
  uint64_t counter;
  std::string name;
  const FunctionName* next;
};
std::atomic<const FunctionName*> function_names{nullptr};

/// The counter depends on the name alone: it is part of objects that other processes may load.
uint64_t counter_of(const std::string& name) {
  uint64_t hash = 14695981039346656037ull;
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211ull;
  return kExternalCode | hash >> 20;
}

uint64_t named_counter(const std::string& name) {
  const uint64_t counter = counter_of(name);
  const FunctionName* first = function_names.load();
  for (const FunctionName* at = first; at; at = at->next)
    if (at->counter == counter) return counter;
  auto entry = std::make_unique<FunctionName>(FunctionName{counter, name, first});
  while (!function_names.compare_exchange_weak(entry->next, entry.get())) {
  }
  entry.release();
  return counter;
}

/// Inserts the calls into one function.
class Announcer {
 public:
  Announcer(llvm::Function& function, const std::string& program)
      : function_(function), module_(*function.getParent()), b_(function.getContext()), program_(program) {}

  void run() {
    std::vector<llvm::Instruction*> accesses, returns;
    for (llvm::BasicBlock& block : function_)
      for (llvm::Instruction& instruction : block) {
        if (instruction.mayReadOrWriteMemory()) accesses.push_back(&instruction);
        if (llvm::isa<llvm::ReturnInst>(instruction)) returns.push_back(&instruction);
      }
    for (llvm::Instruction* access : accesses) announce(*access);
    b_.SetInsertPoint(&*function_.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    uint64_t counter = named_counter(fmt::format("@{} {}", program_, function_.getName().str()));
    call("__tsan_func_entry", {b_.CreateIntToPtr(b_.getInt64(counter), b_.getPtrTy())});
    for (llvm::Instruction* end : returns) {
      b_.SetInsertPoint(end);
      call("__tsan_func_exit", {});
    }
  }

 private:
  void announce(llvm::Instruction& at) {
    b_.SetInsertPoint(&at);
    if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&at))
      announce("read", load->getPointerOperand(), bytes_of(load->getType()));
    else if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&at))
      announce("write", store->getPointerOperand(), bytes_of(store->getValueOperand()->getType()));
    else if (auto* fill = llvm::dyn_cast<llvm::MemSetInst>(&at))
      announce("write", fill->getDest(), fill->getLength());
    else if (auto* copy = llvm::dyn_cast<llvm::MemTransferInst>(&at))
      announce_copy(*copy);
    else if (auto* intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&at))
      announce_intrinsic(*intrinsic);
    else if (!llvm::isa<llvm::FenceInst>(at))  // a fence touches no memory itself
      // Functions that stages call announce their accesses themselves.
      internal_check(llvm::isa<llvm::CallInst>(at), "no announcement of '{}'", at.getOpcodeName());
  }

  void announce_copy(llvm::MemTransferInst& copy) {
    announce("read", copy.getSource(), copy.getLength());
    announce("write", copy.getDest(), copy.getLength());
  }

  void announce_intrinsic(llvm::IntrinsicInst& at) {
    switch (at.getIntrinsicID()) {
      case llvm::Intrinsic::masked_load:
        return announce("read", at.getArgOperand(0), bytes_of(at.getType(), at.getArgOperand(2)));
      case llvm::Intrinsic::masked_store:
        return announce("write", at.getArgOperand(1), bytes_of(at.getArgOperand(0)->getType(), at.getArgOperand(3)));
      case llvm::Intrinsic::prefetch:
        return;  // a prefetch hands no value on
      default:
        internal_check(at.isLifetimeStartOrEnd() || at.isAssumeLikeIntrinsic(), "no announcement of {}",
                       at.getCalledFunction()->getName().str());
    }
  }

  void announce(const std::string& what, llvm::Value* pointer, llvm::Value* bytes) {
    if (llvm::isa<llvm::AllocaInst>(llvm::getUnderlyingObject(pointer, 0))) return;
    call("weft_announce_" + what, {pointer, b_.CreateZExtOrTrunc(bytes, b_.getInt64Ty())});
  }

  llvm::Value* bytes_of(llvm::Type* type) { return b_.getInt64(module_.getDataLayout().getTypeStoreSize(type)); }

  /// Masks are prefixes: the lanes before the end of a row.
  llvm::Value* bytes_of(llvm::Type* type, llvm::Value* mask) {
    auto* vector = llvm::cast<llvm::FixedVectorType>(type);
    llvm::Value* bits = b_.CreateBitCast(mask, b_.getIntNTy(vector->getNumElements()));
    llvm::Value* lanes = b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, bits);
    return b_.CreateMul(b_.CreateZExtOrTrunc(lanes, b_.getInt64Ty()), bytes_of(vector->getElementType()));
  }

  void call(const std::string& name, const std::vector<llvm::Value*>& arguments) {
    std::vector<llvm::Type*> types;
    for (llvm::Value* argument : arguments) types.push_back(argument->getType());
    b_.CreateCall(module_.getOrInsertFunction(name, llvm::FunctionType::get(b_.getVoidTy(), types, false)), arguments);
  }

  llvm::Function& function_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  const std::string& program_;
};

}  // namespace

void announce_accesses(llvm::Module& module, const std::string& program) {
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) Announcer(function, program).run();
}

}  // namespace weft::jit

#ifdef WEFT_THREAD_SANITIZER
extern "C" {
void __tsan_func_entry(void* counter);
void __tsan_func_exit();

// Not instrumented, so that in reports the stage comes right below.
__attribute__((no_sanitize("thread"))) static void weft_announce_read(const void* data, int64_t bytes) {
  weft::announce_read(data, bytes);
}
__attribute__((no_sanitize("thread"))) static void weft_announce_write(void* data, int64_t bytes) {
  weft::announce_write(data, bytes);
}

/// Called by the sanitizer for a report; overrides a weak symbol of its own.
__attribute__((no_sanitize("thread"))) bool __tsan_symbolize_external(uintptr_t counter, char* function,
                                                                      uintptr_t function_size, char* file,
                                                                      uintptr_t file_size, int* line, int* column) {
  for (const weft::jit::FunctionName* at = weft::jit::function_names.load(std::memory_order_acquire); at;
       at = at->next) {
    if (at->counter != counter) continue;
    std::strncpy(function, at->name.c_str(), function_size - 1);
    std::strncpy(file, "machine code", file_size - 1);
    function[function_size - 1] = file[file_size - 1] = '\0';
    *line = *column = 0;
    return true;
  }
  return false;
}
}
#endif

namespace weft::jit {

#ifdef WEFT_THREAD_SANITIZER
namespace {

const std::array<AnnounceSymbol, 4> symbols = {{
    {"weft_announce_read", reinterpret_cast<const void*>(&weft_announce_read)},
    {"weft_announce_write", reinterpret_cast<const void*>(&weft_announce_write)},
    {"__tsan_func_entry", reinterpret_cast<const void*>(&__tsan_func_entry)},
    {"__tsan_func_exit", reinterpret_cast<const void*>(&__tsan_func_exit)},
}};

}  // namespace

std::span<const AnnounceSymbol> announce_symbols() { return symbols; }
#else
std::span<const AnnounceSymbol> announce_symbols() { return {}; }
#endif

}  // namespace weft::jit
