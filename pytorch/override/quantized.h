#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>
#include <vector>

namespace weft::override_kernels {

/// Calls the operator weft::_rnn_quantized through the dispatcher, whose schema says what the arguments are: y, hn and,
/// of an LSTM, cn; of a step the next states alone. Without states they are zeros.
/// @throws c10::Error in PyTorch's words, for sizes that don't fit; for a tensor that requires a gradient while these
/// are enabled, or that isn't on the CPU
std::vector<at::Tensor> call_quantized(const at::Tensor& input, const std::optional<at::Tensor>& batch_sizes,
                                       at::TensorList states, at::TensorList params, std::string_view cell, bool biases,
                                       int64_t layers, bool bidirectional, bool batch_first);

}  // namespace weft::override_kernels
