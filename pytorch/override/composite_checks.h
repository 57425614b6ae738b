#pragma once

#include "override/rnn_call.h"

namespace weft::override_kernels {

/// Raises in words what PyTorch's composite of a call doesn't check, though it then reads beyond the end of something:
/// a state or an input of more dims than it has names for, weights that don't divide into gates, no batch size at all
/// and, since it hands an LSTM to oneDNN as it is, any size of an LSTM. To be called before a composite is. Symbolic
/// sizes are left to the composite.
void check_before_composite(const RnnCall& call);

/// The same of the operators of torch.ao's modules, whose weights tell no sizes here.
void check_dims_and_states(Cell cell, RnnConfig::Form form, const at::Tensor& input, at::TensorList states);

}  // namespace weft::override_kernels
