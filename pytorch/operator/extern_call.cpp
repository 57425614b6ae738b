// The op `extern`: operators of PyTorch's called from inside a program.

#include "operator/extern_call.h"

#include <ATen/core/enum_tag.h>

#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/error.h"
#include "base/external.h"
#include "operator/extern_arguments.h"
#include "operator/program_table.h"
#include "operator/signature.h"
#include "operator/small_matrices.h"

namespace weft::torch_operator {
namespace {

/// A call whose text has been parsed.
struct Prepared {
  std::string name;  ///< the operator as PyTorch prints it, for the statistics
  c10::OperatorHandle op;
  std::vector<ExternArgument> arguments;
  ExternKernel kernel = nullptr;   ///< Weft's kernel, which may leave calls to PyTorch
  std::atomic<int64_t> calls = 0;  ///< how often PyTorch's operator was called
};

/// Prepared calls by text. Never destroyed: calls may come while the process ends. Guarded by lookup_mutex().
auto& prepared_calls = *new std::unordered_map<std::string, std::shared_ptr<Prepared>>;
constexpr size_t kMostPrepared = 4096;

/// By name: counts of calls that are no longer in the table.
auto& calls_before = *new std::map<std::string, int64_t>;

void forget_prepared() {
  for (const auto& [text, prepared] : prepared_calls) calls_before[prepared->name] += prepared->calls;
  prepared_calls.clear();
}

std::shared_ptr<Prepared> prepare(std::string_view text) {
  ExternCall call = parse_extern_call(text);
  std::string_view name = extern_name(text);
  auto op = c10::Dispatcher::singleton().findSchema({call.name, call.overload});
  check(op.has_value(), "extern: PyTorch has no operator {}", name);
  const c10::FunctionSchema& schema = op->schema();
  check(!schema.is_mutable(), "extern: {} changes its arguments", name);
  check(!op->hasTag(at::Tag::nondeterministic_seeded), "extern: {} draws random numbers", name);
  check(schema.arguments().size() == call.arguments.size(), "extern: {} takes {} arguments, not {}", name,
        schema.arguments().size(), call.arguments.size());
  return std::make_shared<Prepared>(std::string(name), *op, std::move(call.arguments), small_matrix_kernel(name));
}

std::shared_ptr<Prepared> find(std::string_view text) {
  std::string key(text);
  {
    std::lock_guard lock(lookup_mutex());
    if (auto found = prepared_calls.find(key); found != prepared_calls.end()) return found->second;
  }
  std::shared_ptr<Prepared> fresh = prepare(text);
  std::lock_guard lock(lookup_mutex());
  if (prepared_calls.size() >= kMostPrepared) forget_prepared();
  return prepared_calls.try_emplace(std::move(key), std::move(fresh)).first->second;
}

at::Tensor tensor_of(const ExternTensor& tensor) {
  at::IntArrayRef sizes(tensor.sizes.data(), tensor.sizes.size());
  if (c10::multiply_integers(sizes) == 0) return at::empty(sizes, scalar_type(tensor.dtype));
  return at::from_blob(tensor.data, sizes, at::TensorOptions(scalar_type(tensor.dtype)));
}

/// The defined tensors that an operator has left on the stack.
std::vector<at::Tensor> results_of(const torch::jit::Stack& stack, const std::string& name) {
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    check(value.isTensor() || value.isTensorList() || value.isNone(), "extern: {} gives a {}, not only tensors", name,
          value.tagKind());
    if (value.isTensor() && value.toTensor().defined()) results.push_back(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& each : value.toTensorVector()) results.push_back(each);
  }
  return results;
}

/// Calls the operator below autograd and autocast, which the program itself has passed already.
void run_extern(std::string_view text, std::span<const ExternTensor> operands, std::span<const ExternTensor> results) {
  const std::shared_ptr<Prepared> prepared = find(text);
  Prepared& call = *prepared;
  if (call.kernel != nullptr && call.kernel(call.arguments, operands, results)) return;
  ++call.calls;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  std::vector<at::Tensor> tensors;
  for (const ExternTensor& operand : operands) tensors.push_back(tensor_of(operand));
  torch::jit::Stack stack;
  const auto& parameters = call.op.schema().arguments();
  for (size_t i = 0; i < parameters.size(); ++i)
    stack.push_back(to_value(call.arguments[i], parameters[i].type(), tensors));
  call.op.callBoxed(stack);
  std::vector<at::Tensor> computed = results_of(stack, call.name);
  check(computed.size() == results.size(), "extern: {} gives {} tensors, but the program says {}", call.name,
        computed.size(), results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    at::IntArrayRef sizes(results[i].sizes.data(), results[i].sizes.size());
    check(computed[i].scalar_type() == scalar_type(results[i].dtype) && computed[i].sizes() == sizes,
          "extern: result {} of {} is {}{}, but the program says {}{}", i, call.name,
          c10::toString(computed[i].scalar_type()), c10::str(computed[i].sizes()),
          c10::toString(scalar_type(results[i].dtype)), c10::str(sizes));
    if (computed[i].numel() > 0) tensor_of(results[i]).copy_(computed[i]);
  }
}

const bool kRegistered = [] {
  set_extern(run_extern);
  return true;
}();

}  // namespace

std::map<std::string, int64_t> extern_calls_so_far() {
  std::lock_guard lock(lookup_mutex());
  std::map<std::string, int64_t> calls = calls_before;
  for (const auto& [text, prepared] : prepared_calls)
    if (prepared->calls > 0) calls[prepared->name] += prepared->calls;
  return calls;
}

}  // namespace weft::torch_operator
