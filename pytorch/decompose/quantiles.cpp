// Quantiles. PyTorch's own implementation changes tensors in place and looks at the values of q. Here q must be a
// number or come from outside.

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "decompose/parts.h"
#include "record/recording_tensor.h"

namespace weft::decompose {
namespace {

double element(const Tensor& q, int64_t i) {
  int64_t place = q.dim() == 0 ? 0 : i * q.stride(0);
  return q.scalar_type() == at::kFloat ? q.const_data_ptr<float>()[place] : q.const_data_ptr<double>()[place];
}

void check(const Tensor& x, const Tensor& q) {
  TORCH_CHECK(x.numel() > 0, "quantile() input tensor must be non-empty");
  TORCH_CHECK(q.dim() <= 1, "quantile() q must be a scalar or 1D tensor");
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
              "quantile() input tensor must be either float or double dtype");
  TORCH_CHECK(x.scalar_type() == q.scalar_type(), "quantile() q tensor must be same dtype as the input tensor");
  if (record::as_recording(q) != nullptr) refuse("quantile: looks at the values of q");
  for (int64_t i = 0; i < q.numel(); ++i)
    TORCH_CHECK(element(q, i) >= 0 && element(q, i) <= 1, "quantile() q values must be in the range [0, 1]");
}

/// The places of the quantiles among the sorted elements of each row: [..., Q].
Tensor ranks_of(const Tensor& sorted, const Tensor& q, bool ignore_nan) {
  int64_t last = sorted.size(-1) - 1;
  Tensor is_nan = sorted.ne(sorted);
  if (ignore_nan) return q * (is_nan.logical_not().sum(-1, true) - 1).clamp_min(0);
  Tensor ranks = q * last;
  return at::where(is_nan.any(-1, true), at::zeros_like(ranks) + last, ranks);  // a NaN stands last
}

/// The quantiles along the last dim: [..., Q].
Tensor along_rows(const Tensor& x, const Tensor& q, std::string_view interpolation, bool ignore_nan) {
  Tensor sorted = std::get<0>(at::sort(x, -1));
  Tensor ranks = ranks_of(sorted, q, ignore_nan);
  Dims shape(x.sizes());
  shape.back() = q.numel();
  ranks = ranks.expand(shape);
  auto at_rank = [&](const Tensor& rank) { return sorted.gather(-1, rank.to(at::kLong)); };
  if (interpolation == "lower") return at_rank(ranks.floor());
  if (interpolation == "higher") return at_rank(ranks.ceil());
  if (interpolation == "nearest") return at_rank(ranks.round());
  bool is_midpoint = interpolation == "midpoint";
  TORCH_CHECK(is_midpoint || interpolation == "linear",
              "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got ",
              interpolation);
  Tensor weights = is_midpoint ? at::zeros_like(ranks) + 0.5 : ranks - ranks.floor().detach();
  return at::lerp(at_rank(ranks.floor()), at_rank(ranks.ceil()), weights);
}

Tensor of_tensor(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                 std::string_view interpolation, bool ignore_nan) {
  int64_t along = dim ? at::maybe_wrap_dim(*dim, x.dim()) : 0;
  Tensor rows = dim && x.dim() > 0 ? x.movedim(along, -1) : x.reshape({-1});
  Tensor result = along_rows(rows, q.reshape({-1}), interpolation, ignore_nan).movedim(-1, 0);
  if (q.dim() == 0) result = result.squeeze(0);
  if (!keepdim) return result;
  if (dim && x.dim() > 0) return result.unsqueeze(along + q.dim());
  for (int64_t i = 0; i < x.dim(); ++i) result = result.unsqueeze(-1);
  return result;
}

template <bool ignore_nan>
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  check(x, q);
  return of_tensor(x, q, dim, keepdim, interpolation, ignore_nan);
}

template <bool ignore_nan>
Tensor quantile_of_number(const Tensor& x, double q, std::optional<int64_t> dim, bool keepdim,
                          std::string_view interpolation) {
  TORCH_CHECK(x.numel() > 0, "quantile() input tensor must be non-empty");
  TORCH_CHECK(q >= 0 && q <= 1, "quantile() q must be in the range [0, 1] but got ", q);
  return of_tensor(x, number_like(q, x), dim, keepdim, interpolation, ignore_nan);
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("quantile", quantile<false>);
  m.impl("quantile.scalar", quantile_of_number<false>);
  m.impl("nanquantile", quantile<true>);
  m.impl("nanquantile.scalar", quantile_of_number<true>);
}
