#include "device/kernels/sparse.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>

#include "device/graph/arguments.h"
#include "device/graph/storage.h"
#include "device/graph/views.h"
#include "device/run/run.h"

namespace weft::device {
namespace {

at::Tensor dense_to_device(const at::Tensor& tensor) { return make_tensor(snapshot(tensor)); }
at::Tensor dense_on_cpu(const at::Tensor& tensor) { return is_on_device(tensor) ? computed(read(tensor)) : tensor; }

/// A tensor of coordinates like `like`, with these indices and values, on the device of `key`.
at::Tensor with_parts(const at::SparseTensorImpl& like, c10::DispatchKey key, const at::Tensor& indices,
                      const at::Tensor& values) {
  auto made = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  auto* impl = static_cast<at::SparseTensorImpl*>(made.unsafeGetTensorImpl());
  impl->resize_(like.sparse_dim(), like.dense_dim(), like.sizes());
  impl->set_indices_and_values_unsafe(indices, values);
  impl->set_coalesced(like.coalesced());
  return made;
}

at::Tensor compressed(const at::Tensor& like, c10::Device device, const at::Tensor& outer, const at::Tensor& inner,
                      const at::Tensor& values) {
  return at::_sparse_compressed_tensor_unsafe(outer, inner, values, like.sizes(), like.scalar_type(), like.layout(),
                                              device, false);
}

/// The tensor on another device, with `part` applied to each of its parts.
at::Tensor moved(const at::Tensor& tensor, c10::Device device, at::Tensor (*part)(const at::Tensor&)) {
  TORCH_CHECK(tensor.is_sparse() || at::sparse_csr::is_sparse_compressed(tensor), "weft: a tensor of layout ",
              tensor.layout(), " on device weft");
  if (tensor.is_sparse()) {
    const auto& impl = *at::sparse::get_sparse_impl(tensor);
    const auto key = device.is_cpu() ? c10::DispatchKey::SparseCPU : c10::DispatchKey::SparsePrivateUse1;
    return with_parts(impl, key, part(impl.indices()), part(impl.values()));
  }
  const auto& impl = *at::sparse_csr::get_sparse_csr_impl(tensor);
  return compressed(tensor, device, part(impl.compressed_indices()), part(impl.plain_indices()), part(impl.values()));
}

}  // namespace

at::Tensor sparse_to_device(const at::Tensor& on_cpu) { return moved(on_cpu, kDevice, dense_to_device); }
at::Tensor sparse_on_cpu(const at::Tensor& tensor) { return moved(tensor, c10::kCPU, dense_on_cpu); }

void write_sparse(const at::Tensor& tensor, const at::Tensor& on_cpu) {
  if (tensor.is_sparse()) {
    const auto& from = *at::sparse::get_sparse_impl(on_cpu);
    auto& to = *at::sparse::get_sparse_impl(tensor);
    to.resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
    to.set_indices_and_values_unsafe(dense_to_device(from.indices()), dense_to_device(from.values()));
    to.set_coalesced(from.coalesced());
    return;
  }
  const auto& from = *at::sparse_csr::get_sparse_csr_impl(on_cpu);
  at::sparse_csr::get_sparse_csr_impl(tensor)->set_member_tensors(dense_to_device(from.compressed_indices()),
                                                                  dense_to_device(from.plain_indices()),
                                                                  dense_to_device(from.values()), from.sizes());
}

at::Tensor part_of_sparse(const std::string& operation, const at::Tensor& tensor) {
  const bool is_whole = operation == "aten::_indices" || operation == "aten::_values";
  if (!tensor.is_sparse() || (!is_whole && operation != "aten::indices" && operation != "aten::values")) return {};
  const auto& impl = *at::sparse::get_sparse_impl(tensor);
  if (!is_whole && !impl.coalesced()) return {};  // the CPU's kernel says why not
  return (operation.ends_with("indices") ? impl.indices() : impl.values()).alias();
}

}  // namespace weft::device
