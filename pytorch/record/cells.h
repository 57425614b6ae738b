#pragma once

#include "operator/aten.h"

namespace weft::record {

/// PyTorch's cells as operations out of place. PyTorch's own composites change tensors in place, and for devices other
/// than the CPU call fused kernels.
at::Tensor gru_cell(const at::Tensor& x, const at::Tensor& h, const at::Tensor& w_ih, const at::Tensor& w_hh,
                    const std::optional<at::Tensor>& b_ih, const std::optional<at::Tensor>& b_hh);
std::tuple<at::Tensor, at::Tensor> lstm_cell(const at::Tensor& x, at::TensorList hx, const at::Tensor& w_ih,
                                             const at::Tensor& w_hh, const std::optional<at::Tensor>& b_ih,
                                             const std::optional<at::Tensor>& b_hh);
at::Tensor rnn_tanh_cell(const at::Tensor& x, const at::Tensor& h, const at::Tensor& w_ih, const at::Tensor& w_hh,
                         const std::optional<at::Tensor>& b_ih, const std::optional<at::Tensor>& b_hh);
at::Tensor rnn_relu_cell(const at::Tensor& x, const at::Tensor& h, const at::Tensor& w_ih, const at::Tensor& w_hh,
                         const std::optional<at::Tensor>& b_ih, const std::optional<at::Tensor>& b_hh);

/// h' from the two products of a cell, [B,3H] each.
at::Tensor gru_from_gates(const at::Tensor& from_x, const at::Tensor& from_h, const at::Tensor& h);
/// h' and c' from the sum of a cell's two products, [B,4H].
std::tuple<at::Tensor, at::Tensor> lstm_from_gates(const at::Tensor& gates, const at::Tensor& c);

}  // namespace weft::record
