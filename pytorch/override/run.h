#pragma once

#include <functional>

#include "override/rnn_call.h"

namespace weft::override_kernels {

/// Runs a call: y, hn and, for an LSTM, cn (of a single step h' and c'). Empty if PyTorch's composite is to run:
/// because Weft is switched off, because Weft has no kernel (which has been counted), or because the call is wrong, so
/// that PyTorch gives the error message.
std::vector<at::Tensor> try_run(const RnnCall& call);

/// The inputs of the layers of a configuration, with time as the first dim.
struct LayerInputs {
  const at::Tensor& sequence;     ///< [T,B,I], packed [N,I], of a single step [B,I]
  const at::Tensor* batch_sizes;  ///< i64[T] if the configuration is packed
  at::TensorList states, params;
  double dropout = 0;  ///< the probability between layers; 0: none
};
/// Appends a direction's inputs beside its parameters (masks, restarts), in the program's order.
using AppendMasks = std::function<void(std::vector<at::Tensor>& inputs, int64_t direction)>;

/// y and the last states of all layers. They come from one program or, with dropout, from one program a layer:
/// PyTorch's dropout between the layers then draws the same masks as without Weft.
std::vector<at::Tensor> run_layers(const RnnConfig& config, const LayerInputs& given, const AppendMasks& masks = {});

/// Register the kernels of aten::gru and similar operators, and of single cells, for a key of Weft's device.
void register_on_device(torch::Library& m);
void register_cells_on_device(torch::Library& m);

}  // namespace weft::override_kernels
