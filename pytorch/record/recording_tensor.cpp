#include "record/recording_tensor.h"

#include "record/home.h"
#include "record/recording.h"

namespace weft::record {

namespace {

constexpr c10::DispatchKeySet kKeys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1,
                                     c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutocastCPU});
constexpr c10::DispatchKeySet kInferenceKeys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutocastCPU});

}  // namespace

RecordingTensor::RecordingTensor(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                                 uint64_t recording, int64_t id, int64_t storage)
    : TensorImpl(c10::InferenceMode::is_enabled() ? kInferenceKeys : kKeys, c10::scalarTypeToTypeMeta(dtype),
                 c10::Device(c10::kCPU)),
      recording(recording),
      id(id),
      storage(storage) {
  set_sizes_and_strides(sizes, strides);
  // The tensor stands for a tensor of the CPU, to which autocast on device weft doesn't apply.
  key_set_ = key_set_.remove(c10::DispatchKey::AutocastPrivateUse1);
  // numpy(), tolist(), data_ptr() and the like. The caller that runs the recording replaces the message.
  release_storage_and_set_meta_custom_data_ptr_error_msg_("weft: reads the value of a recorded tensor");
}

/// For autograd's own copies (saved variables, views under no_grad), which stand for the same value.
c10::intrusive_ptr<c10::TensorImpl> RecordingTensor::shallow_copy_and_detach(
    const c10::VariableVersion& version_counter, bool allow_tensor_metadata_change) const {
  const c10::InferenceMode as_this(!key_set_.has(c10::DispatchKey::ADInplaceOrView));
  auto copy = c10::make_intrusive<RecordingTensor>(c10::typeMetaToScalarType(dtype()), sizes(), strides(), recording,
                                                   id, storage);
  copy->stands_for = stands_for;
  copy->is_data = is_data;
  if (!copy->is_inference()) copy->set_version_counter(version_counter);
  copy->set_allow_tensor_metadata_change(allow_tensor_metadata_change);
  return copy;
}

/// For copies with a version counter of their own: Tensor.data, and results that autograd has saved. The copy stands
/// for the same value, but its gradient goes elsewhere (GradientUse).
c10::intrusive_ptr<c10::TensorImpl> RecordingTensor::shallow_copy_and_detach(c10::VariableVersion&& version_counter,
                                                                             bool allow_tensor_metadata_change) const {
  auto copy =
      shallow_copy_and_detach(static_cast<const c10::VariableVersion&>(version_counter), allow_tensor_metadata_change);
  static_cast<RecordingTensor*>(copy.get())->is_data = true;
  return copy;
}

void RecordingTensor::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>&) {
  throw UnsupportedError("it sets a tensor's data");
}

bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kOthers({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                         c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                                         c10::DispatchKey::Batched, c10::DispatchKey::Functionalize});
  return !tensor.key_set().has_any(kOthers) && tensor.layout() == at::kStrided && is_at_home(tensor.device()) &&
         as_recording(tensor) == nullptr;
}

bool is_like(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.sym_sizes() == other.sym_sizes();
}

RecordingTensor* as_recording(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!impl->key_set().has_backend(c10::BackendComponent::PrivateUse1Bit)) return nullptr;
  return dynamic_cast<RecordingTensor*>(impl);
}

}  // namespace weft::record
