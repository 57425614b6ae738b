#include "base/external.h"

#include <atomic>

#include "base/error.h"
#include "base/prepared_extern.h"

namespace weft {
namespace {

std::atomic<RunExtern> hook{nullptr};
std::atomic<PrepareExtern> prepare_hook{nullptr};

}  // namespace

void set_extern(RunExtern run) { hook.store(run); }

void run_extern(std::string_view call, std::span<const ExternTensor> operands, std::span<const ExternTensor> results) {
  RunExtern run = hook.load();
  check(run != nullptr, "extern: {} is an operator of PyTorch's, which isn't loaded", extern_name(call));
  run(call, operands, results);
}

void set_prepare_extern(PrepareExtern prepare) { prepare_hook.store(prepare); }

std::unique_ptr<const PreparedExtern> prepare_extern(std::string_view call) {
  const PrepareExtern prepare = prepare_hook.load();
  return prepare != nullptr ? prepare(call) : nullptr;
}

std::string_view extern_name(std::string_view call) { return call.substr(0, call.find('(')); }

}  // namespace weft
