#pragma once

#include "operator/program_table.h"
#include "override/rnn_call.h"

namespace weft::override_kernels {

/// y, hn and, for an LSTM, cn of a call (of a single step h' and c'), or empty if PyTorch's composite is to run:
/// because Weft is switched off, for a reason that has been counted, or for PyTorch's own words about a call that is
/// wrong.
std::vector<at::Tensor> try_run(const RnnCall& call);

/// The configuration's program, written at its first use.
const torch_operator::CallProgram& program_for(const RnnConfig& config);

}  // namespace weft::override_kernels
