#pragma once

#include "operator/aten.h"

namespace weft::device {

/// A sparse tensor of the device is made of dense ones, its indices and values. Operations on it run on the CPU.
at::Tensor sparse_to_device(const at::Tensor& on_cpu);
at::Tensor sparse_on_cpu(const at::Tensor& tensor);
/// Gives the sparse tensor the contents of one on the CPU.
void write_sparse(const at::Tensor& tensor, const at::Tensor& on_cpu);

}  // namespace weft::device
