#pragma once

#include <optional>

#include "operator/aten.h"

namespace weft::override_kernels {

/// Calls the operator weft::_rnn_quantized through the dispatcher, whose schema says what the arguments are: y, hn and,
/// of an LSTM, cn; of a step the next states alone. Without states they are zeros. (Vectors, which pybind11 makes of
/// lists.)
/// @throws c10::Error in PyTorch's words, for sizes that don't fit; for a tensor that requires a gradient while these
/// are enabled, or that isn't on the CPU
std::vector<at::Tensor> call_quantized(const at::Tensor& input, const std::optional<at::Tensor>& batch_sizes,
                                       const std::vector<at::Tensor>& states, const std::vector<at::Tensor>& params,
                                       std::string_view cell, bool biases, int64_t layers, bool bidirectional,
                                       bool batch_first);

}  // namespace weft::override_kernels
