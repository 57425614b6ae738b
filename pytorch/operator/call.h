#pragma once

#include "operator/aten.h"
#include "operator/program_table.h"

namespace weft::torch_operator {

/// weft::call through PyTorch's dispatcher: differentiable, traceable. Any thread, with or without the GIL. The kernels
/// that the dispatcher calls get the program without a look-up by text.
std::vector<at::Tensor> call(const ProgramRef& program, at::TensorList inputs);

/// What happens to inputs whose memory the program's results take (ir::Donation).
enum class Donated : uint8_t {
  kCopied,  ///< nothing: the result is stored in a copy of the input
  kTaken    ///< the result is the input's tensor, which must be contiguous and share memory with no other input
};

/// Runs the program on tensors on the CPU, and returns its results.
std::vector<at::Tensor> call_cpu(const CallProgram& program, at::TensorList inputs, Donated donated);

/// How often programs ran in this process.
int64_t calls_so_far();

}  // namespace weft::torch_operator
