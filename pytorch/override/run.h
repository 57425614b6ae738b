#pragma once

#include <functional>

#include "override/rnn_call.h"

namespace weft::override_kernels {

/// y, hn and, for an LSTM, cn of a call (of a single step h' and c'), or empty if PyTorch's composite is to run:
/// because Weft is switched off, for a reason that has been counted, or for PyTorch's own words about a call that is
/// wrong.
std::vector<at::Tensor> try_run(const RnnCall& call);

/// What the layers of a configuration read, the time first.
struct LayerInputs {
  const at::Tensor& sequence;     ///< [T,B,I], packed [N,I], of a single step [B,I]
  const at::Tensor* batch_sizes;  ///< i64[T] if the configuration is packed
  at::TensorList states, params;
  double dropout = 0;  ///< between layers; 0: none
};
/// Appends what one direction of one layer reads beside its parameters, in the program's order.
using AppendMasks = std::function<void(std::vector<at::Tensor>& inputs, int64_t direction)>;

/// y and the last states of all layers: in one program or, with dropout, in a program a layer with PyTorch's dropout
/// between them, which draws the masks that it would draw without Weft.
std::vector<at::Tensor> run_layers(const RnnConfig& config, const LayerInputs& given, const AppendMasks& masks = {});

}  // namespace weft::override_kernels
