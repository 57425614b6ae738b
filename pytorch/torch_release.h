#pragma once

// What differs between the releases of PyTorch that one source is for: 2.13 to 2.15.

#include <torch/headeronly/version.h>

#define WEFT_TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace weft {

/// Whether the derivative at a bound of clamp is zero (of a number) or shared (of a tensor), and fmax's and fmin's are
/// shared between equal numbers. Before 2.14, x had all of it.
constexpr bool kSharesDerivativesOfEqual = WEFT_TORCH_AT_LEAST(14);

}  // namespace weft
