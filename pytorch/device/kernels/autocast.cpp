// torch.autocast("weft"): the kernels that cast arguments before an operation runs. By default PyTorch's own lists in
// ATen/autocast_mode.h, which autocast on CUDA uses, say which operations cast and to which type. docs/autocast.md has
// them as a table.

#include "device/kernels/autocast.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <memory>

#include "device/kernels/autocast_lists.h"
#include "device/kernels/libraries.h"
#include "operator/autocast_state.h"
#include "record/traits.h"

namespace weft::device {
namespace {

using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;  // the lists use these names

/// Raises PyTorch's refusal, in its own words, by calling its kernel for CUDA.
Tensor refuse_binary_cross_entropy(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                                   int64_t reduction) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("aten::binary_cross_entropy", "")
                      .typed<decltype(refuse_binary_cross_entropy)>();
  return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA), self, target, weight, reduction);
}

constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
constexpr auto kType = c10::DeviceType::PrivateUse1;

c10::IValue cast_to(ScalarType type, const c10::IValue& value) {
  if (value.isTensor()) return at::autocast::cached_cast(type, value.toTensor(), kType);
  if (value.isTensorList()) return at::autocast::cached_cast(type, at::TensorList(value.toTensorVector()), kType);
  return value;
}

/// The widest type of the arguments, as in PyTorch. For several half precisions it raises what PyTorch raises.
ScalarType widest(at::ArrayRef<c10::IValue> arguments) {
  ScalarType type = at::autocast::get_lower_precision_fp_from_device_type(kType);
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) type = at::autocast::prioritize(type, argument.toTensor(), kType);
    if (argument.isTensorList())
      for (const Tensor& each : argument.toTensorVector()) type = at::autocast::prioritize(type, each, kType);
  }
  return type;
}

template <Casting casting>
void cast_arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const size_t count = op.schema().arguments().size();
  const at::ArrayRef<c10::IValue> given = torch::jit::last(*stack, count);
  ScalarType type = at::kFloat;
  if (casting == Casting::kLower) type = at::autocast::get_lower_precision_fp_from_device_type(kType);
  if (casting == Casting::kPromote) type = widest(given);
  for (size_t i = stack->size() - count; i < stack->size(); ++i) (*stack)[i] = cast_to(type, (*stack)[i]);
  op.callBoxed(stack);
}

/// Adds kernels for operations. Those that this release of PyTorch lacks are left out, or an error if the list is its
/// own. A name is `conv2d.padding`, or `conv2d, padding`, as PyTorch's lists have it.
template <Casting casting>
void add_kernels_of(torch::Library& m, std::span<const std::string_view> names, bool of_pytorch = false) {
  for (const std::string_view name : names) {
    const size_t end = name.find_first_of(".,");
    const size_t overload = name.find_first_not_of("., ", end);
    const c10::OperatorName full("aten::" + std::string(name.substr(0, end)),
                                 std::string(overload == std::string_view::npos ? "" : name.substr(overload)));
    if (!c10::Dispatcher::singleton().findSchema(full)) {
      TORCH_CHECK(!of_pytorch, "weft: PyTorch's list of autocast has ", full, ", which isn't an operation");
      continue;
    }
    m.impl(c10::toString(full).c_str(), torch::CppFunction::makeFromBoxedFunction<&cast_arguments<casting>>());
  }
}

// The lists are macros that name operations, `conv2d, padding`. One boxed kernel serves each of their kinds: PyTorch's
// own kernel for each operation would be a hundred instances of a template.
#define NAME(...) #__VA_ARGS__,
constexpr std::string_view kLowerOfCuda[] = {AT_FORALL_LOWER_PRECISION_FP(NAME)};
constexpr std::string_view kFloatOfCuda[] = {AT_FORALL_FP32(NAME)};
constexpr std::string_view kPromoteOfCuda[] = {AT_FORALL_PROMOTE(NAME)};
constexpr std::string_view kFloatBesides[] = {"linalg_matrix_sqrth"};  // of PyTorch 2.14; CPU and CUDA cast it too
/// Whole layers, which the lists lack: under CUDA's autocast a layer is _cudnn_rnn, all of whose arguments are cast.
/// All states and results have the lower type, as on CUDA, and as the lists' cells return them.
constexpr std::string_view kLayers[] = {"gru, input",      "gru, data",      "lstm, input",     "lstm, data",
                                        "rnn_tanh, input", "rnn_tanh, data", "rnn_relu, input", "rnn_relu, data"};
#undef NAME

// These kernels have a dtype to set or to add. The macros call the library `m`.
#define FLOAT32_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define FLOAT32_APPEND_DTYPE(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)
void add_list_of_cuda(torch::Library& m) {
  add_kernels_of<Casting::kLower>(m, kLowerOfCuda, /*of_pytorch=*/true);
  add_kernels_of<Casting::kFloat>(m, kFloatOfCuda, /*of_pytorch=*/true);
  add_kernels_of<Casting::kPromote>(m, kPromoteOfCuda, /*of_pytorch=*/true);
  add_kernels_of<Casting::kFloat>(m, kFloatBesides);
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(FLOAT32_APPEND_DTYPE)
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}
#undef FLOAT32_SET_DTYPE
#undef FLOAT32_APPEND_DTYPE

void add_list_of_xla(torch::Library& m) {
  const CastList list = cast_list_of_xla();
  add_kernels_of<Casting::kLower>(m, list.lower);
  add_kernels_of<Casting::kFloat>(m, list.to_float);
  add_kernels_of<Casting::kPromote>(m, list.promote);
}

void add_list_of_cpu(torch::Library& m) {
  const CastList list = cast_list_of_cpu();
  add_kernels_of<Casting::kLower>(m, list.lower);
  add_kernels_of<Casting::kPromote>(m, list.promote);
  std::vector<std::string> others;
  for (const c10::OperatorHandle& op : record::aten_operations_with(c10::DispatchKey::AutocastCPU)) {
    const c10::OperatorName& name = op.operator_name();
    const std::string local = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    const auto is_in = [&](auto names) { return std::ranges::find(names, std::string_view(local)) != names.end(); };
    if (!is_in(list.lower) && !is_in(list.promote)) others.push_back(local);
  }
  add_kernels_of<Casting::kFloat>(m, std::vector<std::string_view>(others.begin(), others.end()));
}

/// The kernels of the list in use. Made at load (base/fork.h).
std::unique_ptr<torch::Library>& kernels_of_list = *new std::unique_ptr<torch::Library>();

}  // namespace

void set_autocast_list(std::string_view name) {
  using Adding = void (*)(torch::Library&);
  const Adding add = name == "cuda" ? &add_list_of_cuda : name == "cpu" ? &add_list_of_cpu : &add_list_of_xla;
  TORCH_CHECK_VALUE(name == "cuda" || name == "cpu" || name == "xla",
                    "weft: autocast has the lists cuda, cpu and xla, but got ", name);
  kernels_of_list.reset();
  kernels_of_list = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  add(*kernels_of_list);
  at::autocast::clear_cache();
}

void register_autocast() {
  kept_library(kKey, "_").fallback(torch::CppFunction::makeFallthrough());
  add_kernels_of<Casting::kLower>(kept_library(kKey), kLayers);
  set_autocast_list("cuda");
}

}  // namespace weft::device
