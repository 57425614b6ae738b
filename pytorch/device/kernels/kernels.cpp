// Operations with a function of the device's own: copies from and to other devices, tensors without values, changes of
// storages, and a few with an incomplete schema.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_strided.h>

#include <unordered_map>

#include "device/call.h"
#include "device/graph/arguments.h"
#include "device/graph/record.h"
#include "device/graph/shapes.h"
#include "device/graph/storage.h"
#include "device/graph/views.h"
#include "device/kernels/attention.h"
#include "device/kernels/grad_scaler.h"
#include "device/kernels/histogram.h"
#include "device/kernels/random.h"
#include "device/kernels/recurrent.h"
#include "device/run/run.h"
#include "device/run/watched_runs.h"
#include "record/argument_words.h"
#include "record/recording_internal.h"

namespace weft::device {

using c10::IValue;
using torch::jit::Stack;

namespace {

/// torch.use_deterministic_algorithms, with torch.utils.deterministic.fill_uninitialized_memory.
bool fills_empty() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

}  // namespace

void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  auto* impl = tensor.unsafeGetTensorImpl();
  int64_t elements = impl->storage_offset() + 1;
  for (size_t i = 0; i < sizes.size(); ++i) elements += sizes[i] == 0 ? 0 : (sizes[i] - 1) * strides[i];
  if (c10::multiply_integers(sizes) == 0) elements = 0;
  const size_t bytes = static_cast<size_t>(elements) * tensor.element_size();
  LazyStorage& storage = storage_of(tensor);
  const size_t before = storage.nbytes();
  if (bytes > before) storage.resize(bytes);
  impl->set_sizes_and_strides(sizes, strides, impl->storage_offset());
  if (bytes > before && fills_empty()) at::native::fill_resize_deterministic_(tensor, static_cast<int64_t>(before));
}

namespace {

/// Tensors with unspecified elements. They are zeros, unless the user asked PyTorch to fill such tensors with
/// conspicuous values.
void make_empty(const Operator& op, Stack& stack) {
  const auto shapes = shapes_of(op, torch::jit::last(stack, op.arguments()));
  const auto& shape = shapes->results[0][0];
  at::Tensor made = make_tensor(shape.dtype, shape.sizes, shape.strides);
  if (fills_empty()) at::native::fill_empty_deterministic_(made);
  put(stack, op.arguments(), {std::move(made)});
}

void make_zeros(const Operator& op, Stack& stack) {
  const auto shapes = shapes_of(operator_named("aten::zeros", ""), torch::jit::last(stack, op.arguments()));
  const auto& shape = shapes->results[0][0];
  put(stack, op.arguments(), {make_tensor(record_zeros(shape.dtype, shape.sizes))});
}

/// The argument may be a fake tensor: to trace an operation without a Meta kernel, PyTorch's tracing runs it on zeros
/// of the fake tensor's sizes. Only a fake tensor's sizes and types can be read.
void zeros_like_given(const Operator& op, Stack& stack) {
  const at::Tensor self = torch::jit::last(stack, op.arguments())[0].toTensor();
  if (!self.has_storage() || self.storage().device_type() != c10::DeviceType::Meta) return record_or_run_new(op, stack);
  make_empty(op, stack);
  stack.back().toTensor().zero_();
}

at::Tensor copy_into(const at::Tensor& self, const at::Tensor& source) {
  if (!is_on_device(self)) {
    const Asking asking("aten::copy_");
    at::Tensor(self).copy_(computed(read(source)));
    return self;
  }
  ValueRef value;
  if (is_on_device(source)) {
    value = record_cast(read(source), self.scalar_type());
  } else {
    TORCH_CHECK(source.device().is_cpu() && source.layout() == at::kStrided, "weft: can't copy a tensor of layout ",
                source.layout(), " on ", source.device(), " to device weft");
    value = snapshot(source.scalar_type() == self.scalar_type() ? source : source.detach().to(self.scalar_type()));
  }
  // Raises PyTorch's error, in its words, for a value that doesn't broadcast to `self`.
  if (at::IntArrayRef(value->sizes) != self.sizes()) {
    const std::vector<int64_t> given(value->sizes.begin(), value->sizes.end());
    const auto common = at::infer_size(given, self.sizes());
    TORCH_CHECK(at::IntArrayRef(common) == self.sizes(), "output with shape ", self.sizes(),
                " doesn't match the broadcast shape ", common);
    value = record_expand(value, self.sizes());
  }
  write(self, std::move(value));
  return self;
}

/// A tensor of another device becomes a tensor of this device. For one of this device the operation is recorded.
void converted(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor source = arguments[0].toTensor();
  if (is_on_device(source)) return record_new(op, stack);
  const auto shapes = shapes_of(op, arguments);
  const auto& shape = shapes->results[0][0];
  const at::Tensor made = make_tensor(shape.dtype, shape.sizes, shape.strides);
  put(stack, op.arguments(), {copy_into(made, source)});
}

void copy(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor self = arguments[0].toTensor(), source = arguments[1].toTensor();
  if (!self.is_same(source)) {
    at::assert_no_partial_overlap(self, source);
    copy_into(self, source);
  }
  put(stack, op.arguments(), {self});
}

/// A call for a sparse gradient runs at once, since the Meta kernel returns a dense gradient for it too.
void embedding_bag_backward(const Operator& op, Stack& stack) {
  const auto sparse = static_cast<size_t>(*op.schema().argumentIndexWithName("sparse"));
  if (torch::jit::last(stack, op.arguments())[sparse].toBool()) return call_not_dense(op.handle, stack);
  record_new(op, stack);
}

/// _copy_from(self, dst), _copy_from_and_resize(self, dst)
void copy_from(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor source = arguments[0].toTensor(), self = arguments[1].toTensor();
  if (op.schema().name() == "aten::_copy_from_and_resize" && self.sizes() != source.sizes())
    self.resize_(source.sizes());
  put(stack, op.arguments(), {copy_into(self, source)});
}

void resize_to(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor self = arguments[0].toTensor();
  const auto sizes = record::integers_of(arguments[1]);
  for (int64_t size : sizes)
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
  auto strides = record::dense_strides(sizes);
  const size_t format = op.schema().name() == "aten::resize_" ? 2 : SIZE_MAX;
  if (format < arguments.size() && !arguments[format].isNone()) {
    const at::Tensor like =
        at::empty(sizes, at::device(at::kMeta).dtype(self.dtype()), arguments[format].toMemoryFormat());
    strides = like.strides().vec();
  }
  if (self.sizes() != at::IntArrayRef(sizes)) resize(self, sizes, strides);
  put(stack, op.arguments(), {self});
}

/// set_(self), (self, Storage), (self, Storage, offset, sizes, strides), (self, Tensor)
void set(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor self = arguments[0].toTensor();
  auto* impl = self.unsafeGetTensorImpl();
  if (arguments.size() == 1) {
    impl->set_storage_keep_dtype(make_tensor(self.scalar_type(), {0}, {1}).storage());
    impl->set_sizes_and_strides(at::IntArrayRef{0}, at::IntArrayRef{1}, 0);
  } else if (arguments[1].isTensor()) {
    const at::Tensor source = arguments[1].toTensor();
    impl->set_storage_keep_dtype(source.storage());
    impl->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  } else {
    const c10::Storage storage = arguments[1].toStorage();
    TORCH_CHECK(storage.device_type() == c10::DeviceType::PrivateUse1,
                "Attempted to set the storage of a tensor on "
                "device \"weft:0\" to a storage on different device \"",
                storage.device(), "\".");
    impl->set_storage_keep_dtype(storage);
    const auto elements = static_cast<int64_t>(storage.nbytes() / self.element_size());
    if (arguments.size() == 2) {
      impl->set_sizes_and_strides(at::IntArrayRef{elements}, at::IntArrayRef{1}, 0);
    } else {
      const auto sizes = record::integers_of(arguments[3]), strides = record::integers_of(arguments[4]);
      const int64_t offset = arguments[2].toSymInt().guard_int(__FILE__, __LINE__);
      if (strides.size() == sizes.size()) {
        impl->set_sizes_and_strides(sizes, strides, offset);
      } else {
        impl->set_sizes_and_strides(sizes, record::dense_strides(sizes), offset);
      }
    }
  }
  put(stack, op.arguments(), {self});
}

void give_back(const Operator& op, Stack& stack) {
  const IValue self = torch::jit::last(stack, op.arguments())[0];
  put(stack, op.arguments(), {self});
}

void give_false(const Operator& op, Stack& stack) { put(stack, op.arguments(), {false}); }

void give_copy(const Operator& op, Stack& stack) {
  const at::Tensor self = torch::jit::last(stack, op.arguments())[0].toTensor();
  put(stack, op.arguments(), {self.clone()});
}

void give_nothing(const Operator& op, Stack& stack) { torch::jit::drop(stack, op.arguments()); }

void is_same_size(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  put(stack, op.arguments(), {arguments[0].toTensor().sizes() == arguments[1].toTensor().sizes()});
}

void is_set_to(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const at::Tensor a = arguments[0].toTensor(), b = arguments[1].toTensor();
  put(stack, op.arguments(),
      {a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
       a.strides() == b.strides()});
}

/// Changes the running statistics, although the schema doesn't say so.
void native_batch_norm(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const auto is_given = [&](size_t i) { return arguments[i].isTensor() && arguments[i].toTensor().defined(); };
  if (!arguments[5].toBool() || !is_given(3) || !is_given(4)) return record_new(op, stack);
  const at::Tensor mean = arguments[3].toTensor(), variance = arguments[4].toTensor();
  Stack call = arguments.vec();
  operator_named("aten::_native_batch_norm_legit_functional", "").handle.callBoxed(&call);
  copy_into(mean, call[3].toTensor());
  copy_into(variance, call[4].toTensor());
  call.resize(3);
  put(stack, op.arguments(), std::move(call));
}

/// native_batch_norm that writes its results to given tensors.
void native_batch_norm_out(const Operator& op, Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments());
  const Operator& plain = operator_named("aten::native_batch_norm", "");
  Stack call = arguments.slice(0, plain.arguments()).vec();
  native_batch_norm(plain, call);
  Stack results;
  for (size_t i = 0; i < call.size(); ++i) {
    const at::Tensor out = arguments[plain.arguments() + i].toTensor(), result = call[i].toTensor();
    if (out.sizes() != result.sizes()) resize(out, result.sizes(), result.strides());
    copy_into(out, result);
    results.emplace_back(out);
  }
  put(stack, op.arguments(), std::move(results));
}

using OwnKernels = std::unordered_map<std::string, Operator::Function>;

/// Made at load (base/fork.h).
const OwnKernels& own_kernels = *new OwnKernels{
    {"aten::empty.memory_format", make_empty},
    {"aten::empty_strided.", make_empty},
    {"aten::empty_like.", make_empty},
    {"aten::empty_permuted.", make_empty},
    {"aten::new_empty.", make_empty},
    {"aten::_embedding_bag_backward.", embedding_bag_backward},
    {"aten::new_empty_strided.", make_empty},
    {"aten::_efficientzerotensor.", make_zeros},
    {"aten::zeros_like.", zeros_like_given},
    {"aten::histc.", histc},
    {"aten::_pack_padded_sequence.", pack},
    {"aten::_to_copy.", converted},
    {"aten::copy_.", copy},
    {"aten::_copy_from.", copy_from},
    {"aten::_copy_from_and_resize.", copy_from},
    {"aten::resize_.", resize_to},
    {"aten::_resize_output_.", resize_to},
    {"aten::set_.", set},
    {"aten::set_.source_Storage", set},
    {"aten::set_.source_Storage_storage_offset", set},
    {"aten::set_.source_Tensor", set},
    {"aten::lift.", give_back},
    {"aten::lift_fresh.", give_back},
    {"aten::is_pinned.", give_false},
    {"aten::_pin_memory.", give_copy},
    {"aten::record_stream.", give_nothing},
    {"aten::is_same_size.", is_same_size},
    {"aten::is_set_to.", is_set_to},
    {"aten::native_batch_norm.", native_batch_norm},
    {"aten::native_batch_norm.out", native_batch_norm_out},
    {"aten::native_dropout.", native_dropout},
    {"aten::_scaled_dot_product_flash_attention_for_cpu.", flash_attention},
    {"aten::_amp_foreach_non_finite_check_and_unscale_.", check_and_unscale},
    {"aten::_amp_update_scale_.", update_scale},
};

}  // namespace

Operator::Function own_function(const std::string& name) {
  const auto found = own_kernels.find(name);
  return found == own_kernels.end() ? nullptr : found->second;
}

}  // namespace weft::device
