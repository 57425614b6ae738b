#pragma once

#include "operator/aten.h"
#include "record/kernel_table.h"

namespace weft::record {

/// A Meta tensor without gaps, its dims in order.
at::Tensor contiguous(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Gradients of activations, norms and losses, and the losses.
void add_gradients(KernelTable& table);
/// Pooling and resampling with their gradients, sorting, scattering, padding.
void add_selections(KernelTable& table);

}  // namespace weft::record
