#pragma once

#include "device/graph.h"

namespace weft::device {

/// The memory of tensors on the device: a value in place of bytes. Several tensors may be views of one storage; each is
/// described by its sizes, strides and offset as on every other device, in elements of the storage.
class LazyStorage final : public c10::StorageImpl {
 public:
  LazyStorage(c10::SymInt bytes, c10::Allocator* allocator, bool resizable);
  ~LazyStorage() override;

  /// The contents: contiguous, of `dtype` and `sizes`. Zeros are recorded if nothing has been written yet.
  const ValueRef& contents();
  bool has_contents() const { return static_cast<bool>(contents_); }
  void set_contents(ValueRef value);

  /// The shape under which the contents are kept, of as many bytes as the storage has. Views that are made of its dims
  /// are read and written fastest.
  at::ScalarType dtype() const { return dtype_; }
  at::IntArrayRef sizes() const { return sizes_; }
  /// Keeps the contents under another shape. What is pending is run first, if there is something.
  void reshape(at::ScalarType dtype, at::IntArrayRef sizes);
  /// Another number of bytes; what there was stays.
  void resize(size_t bytes);

 private:
  ValueRef contents_;
  at::ScalarType dtype_ = at::kByte;
  Sizes sizes_;
  LazyStorage *previous_ = nullptr, *next_ = nullptr;  ///< among all there are

  friend struct Storages;
};

/// The number of the device; there is one.
inline const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

bool is_on_device(const at::Tensor& tensor);

/// Throws, in PyTorch's words, if it is not. `operation`: the name of the one whose argument it is, if any.
void check_on_device(const at::Tensor& tensor, const std::string& operation = "");
LazyStorage& storage_of(const at::Tensor& tensor);

/// A tensor of the device whose storage is new. `strides` may be in any order, with gaps or without.
at::Tensor make_tensor(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides);
at::Tensor make_tensor(ValueRef value, at::IntArrayRef strides);
at::Tensor make_tensor(ValueRef value);
/// A view of another's storage.
at::Tensor make_view(const at::Tensor& base, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset);

/// How PyTorch makes storages for the device.
c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::StorageImpl::use_byte_size_t, c10::SymInt bytes,
                                                  c10::DataPtr data, c10::Allocator* allocator, bool resizable);
c10::Allocator& allocator();

}  // namespace weft::device
