#pragma once

#include "override/rnn_call.h"

namespace weft::override_kernels {

/// Raises an error for what PyTorch's composite of a call doesn't check, although it would then read beyond the end of
/// memory: a state or an input of more dims than the composite has names for, weights that don't divide into gates, no
/// batch size at all, and any wrong size of an LSTM, which goes to oneDNN as it is. Must be called before a composite.
/// Symbolic sizes are left to the composite.
void check_before_composite(const RnnCall& call);

/// The same for the operators of torch.ao's modules, whose weights don't show their sizes here.
void check_dims_and_states(Cell cell, RnnConfig::Form form, const at::Tensor& input, at::TensorList states);

}  // namespace weft::override_kernels
