#pragma once

#include "operator/aten.h"

namespace weft::record {

/// PyTorch's cells and linear layers as one operation of a record each, `weft::gru_cell` and so on: a cell's own record
/// would be ten to twenty operations. An import decomposes them (cells.h). Each has one node in autograd's graph, which
/// can be run.
///
/// Only calls for which one operation says all are recorded so: tensors of the usual sizes and of one dtype, with no
/// transform, tangent or autocast. No result: the call isn't such a one.
std::optional<at::Tensor> whole_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
/// `tensors`: x, the states, w_ih, w_hh, b_ih, b_hh; biases may be undefined.
std::optional<at::Tensor> whole_gru_cell(at::TensorList tensors);
std::optional<std::tuple<at::Tensor, at::Tensor>> whole_lstm_cell(at::TensorList tensors);
std::optional<at::Tensor> whole_rnn_tanh_cell(at::TensorList tensors);
std::optional<at::Tensor> whole_rnn_relu_cell(at::TensorList tensors);

}  // namespace weft::record
