#pragma once

#include <limits>
#include <optional>
#include <string>

#include "operator/aten.h"

namespace weft::decompose {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Dims = c10::DimVector;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Refuses an operation that no program can express: throws c10::NotImplementedError, on which callers leave the whole
/// function to PyTorch.
[[noreturn]] void refuse(const std::string& reason);

/// The keys that come after the one by which a composite has another definition in a recording: for its own.
inline c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::TESTING_ONLY_GenericMode);
}

/// PyTorch's operation of that name, to be called with `below(keys)`.
template <typename Signature>
auto aten(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

/// A number as a tensor of the dtype of `like`.
Tensor number_like(const at::Scalar& number, const Tensor& like);

/// x, with a gradient only where `passes`. It costs the forward nothing.
Tensor gated(const Tensor& passes, const Tensor& x);

/// torch.where. A number gets the dtype of the tensor beside it.
Tensor select(const Tensor& condition, const at::Scalar& x, const Tensor& y);
Tensor select(const Tensor& condition, const Tensor& x, const at::Scalar& y);

/// Casts f16 and bf16 to f32, for operations whose kernels in PyTorch compute in f32 and round once.
Tensor wide(const Tensor& x);

/// Casts integers to the default dtype.
Tensor floating(const Tensor& x);

/// Casts to `dtype`; without one, integers to i64, the dtype of their sums and products.
Tensor summable(const Tensor& x, std::optional<at::ScalarType> dtype);

/// A square root whose derivative at 0 is 0, as in norms and deviations.
Tensor root(const Tensor& x);

/// The dims that a reduction goes over; no dims mean all.
Dims dims_of(const Tensor& x, at::OptionalIntArrayRef dims);

/// The result of a reduction in `dtype`, given with all dims kept; `dims` are removed unless `keepdim`.
Tensor reduced(const Tensor& x, at::IntArrayRef dims, bool keepdim, at::ScalarType dtype);

/// The first `count` elements along the last dim; where it has fewer, zeros behind them.
Tensor of_length(const Tensor& x, int64_t count);

/// 0, 1, ... along `dim` of x. All other dims have size 1.
Tensor positions(const Tensor& x, int64_t dim);

}  // namespace weft::decompose
