// The op `extern`: operators of PyTorch's called from inside a program.

#include "operator/extern_call.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/external.h"
#include "base/prepared_extern.h"
#include "operator/extern_arguments.h"
#include "operator/program_table.h"
#include "operator/signature.h"
#include "operator/small_matrices.h"

namespace weft::torch_operator {
namespace {

/// By the operator's name: how often PyTorch's operator was called. Never erased. Guarded by lookup_mutex().
auto& call_counts = *new std::map<std::string, std::atomic<int64_t>>;

/// An argument of a call, prepared as far as it doesn't depend on the operands.
struct PreparedArgument {
  ExternArgument text;
  c10::TypePtr type;
  int64_t operand = -1;  ///< the argument is this operand
  std::optional<c10::IValue> constant = {};
};

/// A call whose text has been parsed.
struct Prepared {
  std::string name;  ///< the operator as PyTorch prints it, for the statistics
  c10::OperatorHandle op;
  std::vector<ExternArgument> texts;
  std::vector<PreparedArgument> arguments;
  ExternKernel kernel;          ///< Weft's kernel, which may leave calls to PyTorch; or null
  std::atomic<int64_t>& calls;  ///< in call_counts
};

/// Prepared calls by text. Never destroyed: calls may come while the process ends. Guarded by lookup_mutex().
auto& prepared_calls = *new std::unordered_map<std::string, std::shared_ptr<const Prepared>>;
constexpr size_t kMostPrepared = 4096;

bool has_operands(const ExternArgument& argument) {
  return argument.kind == ExternArgument::Kind::kOperand || !argument.sizes.empty() ||
         std::ranges::any_of(argument.items, has_operands);
}

bool takes_tensor(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  return type.kind() == c10::TypeKind::OptionalType &&
         takes_tensor(*type.expectRef<c10::OptionalType>().getElementType());
}

PreparedArgument prepare(ExternArgument text, const c10::TypePtr& type) {
  PreparedArgument argument{std::move(text), type};
  if (argument.text.kind == ExternArgument::Kind::kOperand && takes_tensor(*type))
    argument.operand = argument.text.integer;
  else if (!has_operands(argument.text))
    argument.constant = to_value(argument.text, type, {});
  return argument;
}

std::shared_ptr<const Prepared> prepare(std::string_view text) {
  ExternCall call = parse_extern_call(text);
  std::string_view name = extern_name(text);
  auto op = c10::Dispatcher::singleton().findSchema({call.name, call.overload});
  check(op.has_value(), "extern: PyTorch has no operator {}", name);
  const c10::FunctionSchema& schema = op->schema();
  check(!schema.is_mutable(), "extern: {} changes its arguments", name);
  check(!op->hasTag(at::Tag::nondeterministic_seeded), "extern: {} draws random numbers", name);
  check(schema.arguments().size() == call.arguments.size(), "extern: {} takes {} arguments, not {}", name,
        schema.arguments().size(), call.arguments.size());
  std::vector<PreparedArgument> arguments;
  for (size_t i = 0; i < call.arguments.size(); ++i)
    arguments.push_back(prepare(call.arguments[i], schema.arguments()[i].type()));
  std::lock_guard lock(lookup_mutex());
  return std::make_shared<const Prepared>(std::string(name), *op, std::move(call.arguments), std::move(arguments),
                                          small_matrix_kernel(name), call_counts[std::string(name)]);
}

std::shared_ptr<const Prepared> find(std::string_view text) {
  std::string key(text);
  {
    std::lock_guard lock(lookup_mutex());
    if (auto found = prepared_calls.find(key); found != prepared_calls.end()) return found->second;
  }
  std::shared_ptr<const Prepared> fresh = prepare(text);
  std::lock_guard lock(lookup_mutex());
  if (prepared_calls.size() >= kMostPrepared) prepared_calls.clear();
  return prepared_calls.try_emplace(std::move(key), std::move(fresh)).first->second;
}

/// A tensor over memory that it does not own.
at::Tensor tensor_of(const ExternTensor& tensor) {
  const at::IntArrayRef sizes(tensor.sizes.data(), tensor.sizes.size());
  const int64_t count = c10::multiply_integers(sizes);
  if (count == 0) return at::empty(sizes, scalar_type(tensor.dtype));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), count * size_of(tensor.dtype),
      c10::DataPtr(tensor.data, c10::Device(c10::kCPU)), /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                             c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                             c10::scalarTypeToTypeMeta(scalar_type(tensor.dtype)));
  made.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return made;
}

/// Copies a computed tensor to a result's memory.
void store(const at::Tensor& computed, const ExternTensor& result) {
  constexpr size_t kShared = size_t{1} << 18U;  // from so many bytes on PyTorch's threads share a copy
  if (computed.numel() == 0) return;
  const bool is_plain = computed.layout() == at::kStrided && computed.is_contiguous() && !computed.is_conj() &&
                        !computed.is_neg() && !computed._is_zerotensor();
  if (is_plain && computed.nbytes() < kShared)
    std::memcpy(result.data, computed.const_data_ptr(), computed.nbytes());
  else
    tensor_of(result).copy_(computed);
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
void run(const Prepared& call, std::span<const ExternTensor> operands, std::span<const ExternTensor> results) {
  if (call.kernel != nullptr && call.kernel(call.texts, operands, results)) return;
  call.calls.fetch_add(1, std::memory_order_relaxed);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  std::vector<at::Tensor> tensors;
  tensors.reserve(operands.size());
  for (const ExternTensor& operand : operands) tensors.push_back(tensor_of(operand));
  torch::jit::Stack stack;
  stack.reserve(call.arguments.size());
  for (const PreparedArgument& argument : call.arguments) {
    if (argument.constant)
      stack.push_back(*argument.constant);
    else if (argument.operand >= 0 && argument.operand < std::ssize(tensors))
      stack.emplace_back(tensors[static_cast<size_t>(argument.operand)]);
    else
      stack.push_back(to_value(argument.text, argument.type, tensors));
  }
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
    store(computed[i], results[i]);
  }
}

void run_extern(std::string_view text, std::span<const ExternTensor> operands, std::span<const ExternTensor> results) {
  run(*find(text), operands, results);
}

class PreparedCall final : public PreparedExtern {
 public:
  explicit PreparedCall(std::string_view text) : call_(find(text)) {}
  void run(std::span<const ExternTensor> operands, std::span<const ExternTensor> results) const override {
    torch_operator::run(*call_, operands, results);
  }

 private:
  std::shared_ptr<const Prepared> call_;
};

const bool kRegistered = [] {
  set_extern(run_extern);
  set_prepare_extern([](std::string_view text) -> std::unique_ptr<const PreparedExtern> {
    return std::make_unique<const PreparedCall>(text);
  });
  return true;
}();

}  // namespace

std::map<std::string, int64_t> extern_calls_so_far() {
  std::lock_guard lock(lookup_mutex());
  std::map<std::string, int64_t> calls;
  for (const auto& [name, count] : call_counts)
    if (count > 0) calls[name] = count;
  return calls;
}

}  // namespace weft::torch_operator
