#include "jit/objects.h"

#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <functional>
#include <numeric>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/fork.h"
#include "base/settings.h"
#include "jit/jit.h"
#include "jit/object_cache.h"
#include "jit/target.h"
#include "runtime/threads/cores.h"

namespace weft::jit {
namespace {

std::string text_of(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

std::string bitcode_of(const llvm::Module& module) {
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  llvm::WriteBitcodeToFile(module, stream);
  return bytes;
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

Object compile(llvm::Module& module, const std::string& dump) {
  Object object;
  const Machine machine = machine_of(target_of(runtime::active_isa()));
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  if (!dump.empty()) write(dump + ".ll", text_of(module));
  if (settings().verify) {
    std::string problems;
    llvm::raw_string_ostream stream(problems);
    internal_check(!llvm::verifyModule(module, &stream), "LLVM's verifier: {}", problems);
  }
  optimise(module, *machine);
  for (const llvm::Function& function : module) object.instructions += function.getInstructionCount();
  if (!dump.empty()) {
    write(dump + ".opt.ll", text_of(module));
    auto copy = llvm::CloneModule(module);
    write(dump + ".s", emit(*copy, *machine, llvm::CodeGenFileType::AssemblyFile));
  }
  object.bytes = emit(module, *machine, llvm::CodeGenFileType::ObjectFile);
  return object;
}

}  // namespace

std::string code_options() {
  const Target& target = target_of(runtime::active_isa());
  return fmt::format("weft {} llvm {} pipeline {} without {}, {}, {} level {} fusion {} cpu {} features {}",
                     WEFT_VERSION, LLVM_VERSION_STRING, kOptions.pipeline, kOptions.without,
                     kOptions.without_for_others, kOptions.without_in_few_registers, static_cast<int>(kOptions.level),
                     static_cast<int>(kOptions.fusion), target.cpu, target.features);
}

namespace {

/// The key of the object cache. It contains the module, so that a change of code generation never meets an old object;
/// as bitcode, since LLVM takes six times as long to write its text.
std::string cache_key(const llvm::Module& module) { return code_options() + "\n" + bitcode_of(module); }

Object object_of(llvm::Module& module, const std::string& dump) {
  const std::string key = settings().cache_dir.empty() ? "" : cache_key(module);
  if (auto found = dump.empty() ? load_object(key, Stored::kModule) : std::nullopt)
    return {.bytes = *std::move(found), .from_cache = true};
  Object object = compile(module, dump);
  store_object(key, object.bytes, Stored::kModule);
  return object;
}

/// Calls each(i) for all i below `count`, by several threads if the system gives them. Throws the error of one of the
/// calls if some throw.
template <typename Each>
void in_threads(size_t count, const Each& each) {
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> errors(count);
  auto work = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        each(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
  };
  // A child of a fork has one thread, as for all else.
  const size_t most = in_forked_child() ? 1 : std::min(count, static_cast<size_t>(runtime::usable_cores()));
  std::vector<std::jthread> threads;
  try {
    while (threads.size() + 1 < most) threads.emplace_back(runtime::on_another_core(std::ref(work)));
  } catch (const std::system_error&) {
    // No more threads can be had: the running ones do the work.
  }
  work();
  threads.clear();  // waits
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

std::vector<Object> compile_modules(std::vector<codegen::StageModule> modules, const std::string& dump) {
  // The largest module first: other threads compile the smaller ones meanwhile.
  std::vector<size_t> order(modules.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return modules[i].module->getInstructionCount(); });
  std::vector<Object> objects(modules.size());
  in_threads(modules.size(), [&](size_t i) { objects[order[i]] = object_of(*modules[order[i]].module, dump); });
  return objects;
}

}  // namespace weft::jit
