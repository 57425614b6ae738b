#pragma once

#include "operator/aten.h"

namespace weft::device {

/// The sparse tensor on the device. It is made of dense tensors of the device, its indices and values. Operations on it
/// run on the CPU.
at::Tensor sparse_to_device(const at::Tensor& on_cpu);
at::Tensor sparse_on_cpu(const at::Tensor& tensor);
/// Gives the sparse tensor the contents of one on the CPU.
void write_sparse(const at::Tensor& tensor, const at::Tensor& on_cpu);

/// The part of a COO tensor that the operation returns: `_indices()`, `_values()` and, if it is coalesced, `indices()`
/// and `values()`. The part shares memory with the tensor. Undefined for other operations.
at::Tensor part_of_sparse(const std::string& operation, const at::Tensor& tensor);

}  // namespace weft::device
