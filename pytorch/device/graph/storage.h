#pragma once

#include "device/graph/graph.h"

namespace weft::device {

/// The memory of tensors on the device: a value in place of bytes. Several tensors may be views of one storage; each is
/// described by its sizes, strides and offset as on every other device, in elements of the storage.
class LazyStorage final : public c10::StorageImpl, public Pooled<LazyStorage> {
 public:
  LazyStorage(c10::SymInt bytes, c10::Allocator* allocator, bool resizable);
  /// A storage of the value's size with the value as its contents.
  explicit LazyStorage(ValueRef contents);
  ~LazyStorage() override;

  /// The contents: contiguous, of `dtype` and `sizes`. Zeros are recorded if nothing has been written yet.
  const ValueRef& contents();
  void set_contents(ValueRef value);

  /// The shape in which the contents are kept: it has as many bytes as the storage. Views made of its dims are read and
  /// written fastest.
  at::ScalarType dtype() const { return dtype_; }
  at::IntArrayRef sizes() const { return sizes_; }
  /// Keeps the contents in another shape. Runs what is pending first, if there is something.
  void reshape(at::ScalarType dtype, at::IntArrayRef sizes);
  /// Changes the number of bytes; the contents stay.
  void resize(size_t bytes);

 private:
  ValueRef contents_;
  at::ScalarType dtype_ = at::kByte;
  Sizes sizes_;
  LazyStorage *previous_ = nullptr, *next_ = nullptr;  ///< in the list of all storages

  friend struct Storages;
};

/// The device; its number is 0, since there is only one.
inline const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

bool is_on_device(const at::Tensor& tensor);
/// Whether it is a tensor of the device whose operations are recorded as calls: neither a fake tensor, which comes here
/// while PyTorch traces, nor one of a step's recording.
bool has_values(const at::Tensor& tensor);

/// Throws, in PyTorch's words, if the tensor is not on the device. `operation`: the operation that it is an argument
/// of, if any.
void check_on_device(const at::Tensor& tensor, const std::string& operation = "");
LazyStorage& storage_of(const at::Tensor& tensor);

/// A tensor of the device whose storage is new. `strides` may be in any order, with gaps or without.
at::Tensor make_tensor(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides);
at::Tensor make_tensor(ValueRef value, at::IntArrayRef strides);
at::Tensor make_tensor(ValueRef value);
/// A view of the base's storage.
at::Tensor make_view(const at::Tensor& base, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset);

/// The function that makes storages of the device for PyTorch.
c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::StorageImpl::use_byte_size_t, c10::SymInt bytes,
                                                  c10::DataPtr data, c10::Allocator* allocator, bool resizable);
c10::Allocator& allocator();

}  // namespace weft::device
