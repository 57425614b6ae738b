#include "record/meta/result_shapes.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/fork.h"
#include "record/aside.h"
#include "record/meta/kernels.h"
#include "record/recording.h"
#include "record/traits.h"

namespace weft::record {

namespace {

/// A bound on the cache; shapes beyond it are computed again.
constexpr size_t kMostShapes = 1U << 14U;

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::vector<int64_t>, std::shared_ptr<const ResultShapes>, WordsHash> shapes;
  Cache() { hold_across_fork(mutex, LockRank::kLookup); }
};

/// Made at load (base/fork.h).
Cache& cache = *new Cache();

at::Tensor to_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta).requires_grad(false));
}

c10::IValue to_meta(const c10::IValue& value) {
  if (value.isTensor()) return to_meta(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::kMeta);
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(to_meta(tensor));
    return tensors;
  }
  if (value.isList()) {
    auto list = value.toList();
    c10::impl::GenericList copy(list.elementType());
    for (const c10::IValue& item : list) copy.push_back(to_meta(item));
    return copy;
  }
  return value;
}

ResultShape shape_of(const at::Tensor& tensor) {
  ResultShape shape;
  shape.is_defined = tensor.defined();
  if (!shape.is_defined) return shape;
  shape.dtype = tensor.scalar_type();
  shape.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  shape.strides.assign(tensor.strides().begin(), tensor.strides().end());
  return shape;
}

/// For an operation that stores its only result in its first argument and keeps the argument's shape: the variant that
/// returns a new tensor. It is used because several in-place Meta functions copy numbers between devices.
std::optional<c10::OperatorHandle> storing_variant(const c10::OperatorHandle& op) {
  const Traits& traits = traits_of(op);
  if (traits.returns.size() != 1 || traits.returns[0].argument != 0 || !traits.returns[0].is_argument) return {};
  if (!traits.writes[0] || std::ranges::count(traits.writes, true) != 1) return {};
  if (op.hasTag(at::Tag::inplace_view) || meta_kernel(op.operator_name())) return {};
  auto variant = out_of_place(op);
  if (!variant || traits_of(*variant).returns[0].argument >= 0) return {};
  return variant;
}

/// Does the work of call_on_meta for an in-place operation, by its out-of-place variant.
void store_by_variant(const c10::OperatorHandle& variant, torch::jit::Stack& stack) {
  const at::Tensor self = stack[0].toTensor();
  call_on_meta(variant, stack);
  const at::Tensor& result = stack[0].toTensor();
  TORCH_CHECK(result.sizes() == self.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ",
              result.sizes());
  TORCH_CHECK(c10::canCast(result.scalar_type(), self.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", self.scalar_type());
  stack[0] = self;
}

}  // namespace

void call_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::DispatchKeySet meta(c10::DispatchKey::Meta);
  if (const c10::KernelFunction* kernel = meta_kernel(op.operator_name())) {
    kernel->callBoxed(op, meta, &stack);
  } else {
    op.redispatchBoxed(meta, &stack);
  }
}

bool can_store_on_meta(const c10::OperatorHandle& op) {
  const auto variant = storing_variant(op);
  return variant && meta_kernel(variant->operator_name()) != nullptr;
}

void store_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  torch::jit::Stack arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  const Aside aside;
  store_by_variant(*storing_variant(op), arguments);
  torch::jit::drop(stack, count);
  stack.push_back(std::move(arguments[0]));
}

ResultShapes compute_shapes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) stack.push_back(to_meta(argument));
  // Without a device, factories would make a tensor on the CPU.
  const auto& parameters = op.schema().arguments();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name() == "device" && stack[i].isNone()) stack[i] = c10::Device(c10::kMeta);
    if (parameters[i].name() == "pin_memory") stack[i] = c10::IValue();
  }
  const torch::jit::Stack before = stack;
  {
    const Aside aside;
    if (const auto variant = storing_variant(op)) {
      store_by_variant(*variant, stack);
    } else {
      call_on_meta(op, stack);
    }
  }
  ResultShapes shapes;
  for (const c10::IValue& result : stack) {
    auto& found = shapes.results.emplace_back();
    shapes.is_list.push_back(result.isTensorList());
    if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) found.push_back(shape_of(tensor));
    } else if (result.isTensor()) {
      found.push_back(shape_of(result.toTensor()));
    } else {
      throw UnsupportedError(op.schema().name() + ": a result that is no tensor");
    }
  }
  for (const auto& found : shapes.results) shapes.all.insert(shapes.all.end(), found.begin(), found.end());
  for (size_t i = 0; i < before.size(); ++i) {
    if (!before[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor& now = before[i].toTensor();
    const at::Tensor& then = arguments[i].toTensor();
    if (now.sizes() != then.sizes() || now.strides() != then.strides()) {
      shapes.resized.emplace_back(i, shape_of(now));
    }
  }
  return shapes;
}

std::shared_ptr<const ResultShapes> known_shapes(const std::vector<int64_t>& key) {
  std::lock_guard lock(cache.mutex);
  auto known = cache.shapes.find(key);
  return known != cache.shapes.end() ? known->second : nullptr;
}

std::shared_ptr<const ResultShapes> find_shapes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
                                                const std::vector<int64_t>& key) {
  auto shapes = std::make_shared<const ResultShapes>(compute_shapes(op, arguments));
  remember_shapes(key, shapes);
  return shapes;
}

void remember_shapes(const std::vector<int64_t>& key, std::shared_ptr<const ResultShapes> shapes) {
  std::lock_guard lock(cache.mutex);
  if (cache.shapes.size() >= kMostShapes) cache.shapes.clear();
  cache.shapes.emplace(key, std::move(shapes));
}

}  // namespace weft::record
