#include "runtime/calls/kernel_call.h"

#include "base/error.h"
#include "runtime/calls/calls.h"

namespace weft::runtime {
namespace {

bool run(const CallbackCall&, const CallContext&, std::string&) {
  internal_error("a callback is no kernel of the runtime");
}

}  // namespace

bool run_kernel(const KernelCall& call, const CallContext& context, std::string& error) {
  return std::visit([&](const auto& kind) { return run(kind, context, error); }, call);
}

}  // namespace weft::runtime
