#pragma once

#include "operator/aten.h"
#include "record/kernel_table.h"

namespace weft::record {

/// A Meta tensor without gaps, its dims in order.
at::Tensor contiguous(at::IntArrayRef sizes, const at::TensorOptions& options);

/// Gradients of activations, norms and losses, and the losses.
void add_gradients(KernelTable& table);
/// A Meta tensor of x's type, its dims in memory as x's are (torch.preserve_format).
at::Tensor same(const at::Tensor& x);

/// What fills, joins, moves and selects.
void add_movement(KernelTable& table);
/// Functions by element that PyTorch composes of others, special functions, sums over all elements.
void add_functions(KernelTable& table);
/// Convolutions, transposed ones too, and their gradients.
void add_convolutions(KernelTable& table);
/// Pooling and resampling with their gradients, sorting, scattering, padding.
void add_selections(KernelTable& table);

}  // namespace weft::record
