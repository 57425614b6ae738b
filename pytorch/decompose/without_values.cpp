// Composite functions of PyTorch that read values, which a recorded step doesn't have yet. They are written here with
// operations that don't read values, or left to PyTorch, with the reason.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cov_native.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/narrow_native.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor_split_native.h>
#include <ATen/ops/where.h>

#include "decompose/parts.h"
#include "record/recording.h"

namespace weft::decompose {
namespace {

bool has_no_value(const OptionalTensor& tensor) { return tensor && record::as_recording(*tensor) != nullptr; }

/// The rows start, start+1, ..., gathered by their numbers: a copy where PyTorch has a view (Recording::show_as_view).
/// A negative start counts from the end.
Tensor narrow(const Tensor& x, int64_t dim, const Tensor& start, int64_t length) {
  if (!has_no_value(start)) return at::native::narrow_tensor_symint(x, dim, start, length);
  TORCH_CHECK(start.dim() == 0 && at::isIntegralType(start.scalar_type(), /*includeBool=*/false),
              "start must be an 0-dim integral Tensor.");
  TORCH_CHECK(x.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK(length >= 0, "narrow(): length must be non-negative.");
  record::Recording* recording = record::Recording::current();
  if (recording == nullptr || (record::as_recording(x) == nullptr && !record::is_plain(x)))
    refuse("narrow: where it starts depends on values");
  Tensor number = start.to(at::kLong);
  Tensor first = at::where(number.lt(0), number + x.size(dim), number);
  Tensor rows = x.index_select(dim, first + at::arange(length, at::kLong));
  recording->show_as_view(x, rows);
  return rows;
}

std::vector<Tensor> tensor_split(const Tensor& x, const Tensor& indices_or_sections, int64_t dim) {
  if (has_no_value(indices_or_sections)) refuse("tensor_split: the sizes of its results depend on values");
  return at::native::tensor_split(x, indices_or_sections, dim);
}

/// PyTorch checks that the number of observations minus the correction is positive. Without weights this needs no
/// values. With weights PyTorch also checks their values.
Tensor cov(const Tensor& x, int64_t correction, const OptionalTensor& fweights, const OptionalTensor& aweights) {
  if (has_no_value(fweights) || has_no_value(aweights)) refuse("cov: looks at its weights' values");
  if (fweights || aweights || x.dim() > 2 || x.scalar_type() == at::kBool)
    return at::native::cov(x, correction, fweights, aweights);
  Tensor rows = floating(x.dim() < 2 ? x.reshape({1, -1}) : x);
  Tensor count = at::ones({rows.size(1)}, c10::toRealValueType(rows.scalar_type())).sum();
  Tensor centred = rows - (rows.sum(1) / count).unsqueeze(1);
  return (at::mm(centred, centred.t().conj()) / (count - correction).clamp_min(0)).squeeze();
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("narrow.Tensor", narrow);
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
  m.impl("cov", cov);
}
