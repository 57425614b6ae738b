#pragma once

// The differences between the releases of PyTorch that this source supports: 2.13 to 2.15.

#include <torch/headeronly/version.h>

#define WEFT_TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace weft {

/// Whether, since 2.14, derivatives at ties are shared. x of a clamp at its bound gets zero if the bound is a number
/// and half if it is a tensor; fmax and fmin of equal numbers give each half. Before, x got all of it.
constexpr bool kSharesDerivativesOfEqual = WEFT_TORCH_AT_LEAST(14);
/// Whether the derivative of fmax(NaN, number) is 1 by both arguments; otherwise it is 1 by the number alone. The same
/// for fmin.
constexpr bool kSharesDerivativesOfNan = WEFT_TORCH_AT_LEAST(14) && !WEFT_TORCH_AT_LEAST(15);

}  // namespace weft
