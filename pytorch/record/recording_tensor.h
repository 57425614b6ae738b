#pragma once

#include "operator/aten.h"

namespace torch::autograd {
struct Node;
}

namespace weft::record {

/// A tensor without data that stands for a value of a recording. It presents itself as a dense tensor on the CPU, so
/// that Python code and PyTorch's composite operations treat it as one. Its dispatch key brings every operation on it
/// to the recorder.
struct RecordingTensor : c10::TensorImpl {
  /// `storage`: a number that is equal for views of each other. A view of a tensor from outside has a negative number:
  /// -1 - storage is the index of that tensor.
  RecordingTensor(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides, uint64_t recording, int64_t id,
                  int64_t storage);

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version_counter,
                                                         bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version_counter,
                                                         bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) override;

  void resize(at::IntArrayRef sizes, at::IntArrayRef strides) { set_sizes_and_strides(sizes, strides); }

  /// The tensor from outside that this tensor stands for, perhaps with other sizes.
  at::Tensor stands_for;
  uint64_t recording;  ///< the serial number of its recording
  int64_t id, storage;
  /// Whether it is a copy by autograd with a version counter of its own: Tensor.data, a saved result.
  bool is_data = false;
  const torch::autograd::Node* node = nullptr;  ///< autograd's node for it when it was last read,
  int32_t node_number = 0;                      ///< and that node's number (gradient_graph.h)
};

/// Whether the tensor's numbers can be read: it is no subclass with operations of its own and no transform's wrapper.
bool is_plain(const at::Tensor& tensor);

/// Whether autograd gives tensors of this dtype gradients.
inline bool has_gradients(at::ScalarType dtype) { return at::isFloatingType(dtype) || at::isComplexType(dtype); }

/// Whether both have the same dtype and sizes.
bool is_like(const at::Tensor& one, const at::Tensor& other);

/// The tensor as a recording tensor; nullptr if it is none.
RecordingTensor* as_recording(const at::Tensor& tensor);

}  // namespace weft::record
