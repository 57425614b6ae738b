#pragma once

// What differs between the releases of PyTorch that one source is for: 2.13 to 2.15.

#include <torch/headeronly/version.h>

#define WEFT_TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace weft {

/// Whether, since 2.14, derivatives at ties are shared: x of a clamp at its bound gets zero if the bound is a number
/// and half if it is a tensor, and fmax and fmin of equal numbers give each half. Before, x had all of it.
constexpr bool kSharesDerivativesOfEqual = WEFT_TORCH_AT_LEAST(14);
/// Whether the derivative of fmax and fmin is one for both arguments where one of them is NaN. Otherwise it is one for
/// the other argument alone.
constexpr bool kSharesDerivativesOfNan = WEFT_TORCH_AT_LEAST(14) && !WEFT_TORCH_AT_LEAST(15);

}  // namespace weft
