#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/external.h"
#include "operator/extern_arguments.h"

namespace weft::torch_operator {

/// A kernel of Weft's for a call of an extern op. Returns false, with meaningless results, for a call that it can't do.
/// The caller then runs PyTorch's operator, which also raises the errors.
using ExternKernel = bool (*)(std::span<const ExternArgument> arguments, std::span<const ExternTensor> operands,
                              std::span<const ExternTensor> results);

/// The kernel for an operator ("aten.linalg_cholesky_ex.default"), or null. There are kernels for Cholesky's
/// factorisation and for solving with triangular matrices, many small ones at a time, in f32 and f64: LAPACK, which
/// PyTorch calls for each matrix, takes longer for its calls than for their work.
ExternKernel small_matrix_kernel(std::string_view name);

}  // namespace weft::torch_operator
