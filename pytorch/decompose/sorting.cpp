// Order among the elements of short rows, in a program that runs without PyTorch: each element is compared with each
// other one, and the number of those that come before it is its place. Of equal elements the first comes first; a NaN
// is larger than all numbers.

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "decompose/parts.h"
#include "record/recording.h"

namespace weft::decompose {
namespace {

using Pair = std::tuple<Tensor, Tensor>;
using OptionalWord = std::optional<std::string_view>;

const auto kSort = aten<Pair(const Tensor&, int64_t, bool)>("aten::sort", "");
const auto kStableSort = aten<Pair(const Tensor&, std::optional<bool>, int64_t, bool)>("aten::sort", "stable");
const auto kTopk = aten<Pair(const Tensor&, c10::SymInt, int64_t, bool, bool)>("aten::topk", "");
const auto kKth = aten<Pair(const Tensor&, c10::SymInt, int64_t, bool)>("aten::kthvalue", "");
const auto kMedian = aten<Tensor(const Tensor&)>("aten::median", "");
const auto kMedianDim = aten<Pair(const Tensor&, int64_t, bool)>("aten::median", "dim");
const auto kNanMedian = aten<Tensor(const Tensor&)>("aten::nanmedian", "");
const auto kNanMedianDim = aten<Pair(const Tensor&, int64_t, bool)>("aten::nanmedian", "dim");
const auto kPlaces = aten<Tensor(const Tensor&, const Tensor&, bool, bool, OptionalWord, const OptionalTensor&)>(
    "aten::searchsorted", "Tensor");

constexpr int64_t kLongest = 128;  ///< a row is as many comparisons as its length squared

bool is_short(const Tensor& x, int64_t length) {
  return record::Recording::is_alone() && !x.is_complex() && x.numel() > 0 && length <= kLongest;
}

int64_t row_length(const Tensor& x, int64_t dim) { return x.dim() == 0 ? 1 : x.size(dim); }

bool is_ours(const Tensor& x, int64_t dim) { return is_short(x, row_length(x, at::maybe_wrap_dim(dim, x.dim()))); }

Tensor is_nan(const Tensor& x) { return x.ne(x); }

/// a < b, by the order above.
Tensor is_less(const Tensor& a, const Tensor& b) {
  const Tensor less = a.lt(b);
  return at::isFloatingType(a.scalar_type()) ? less.logical_or(is_nan(b).logical_and(is_nan(a).logical_not())) : less;
}

/// How many elements of its row come before each one: int32, in x's shape [..., n].
Tensor places(const Tensor& x, bool descending) {
  const Tensor each = x.unsqueeze(-1), other = x.unsqueeze(-2);  // [..., n, 1], [..., 1, n]
  const Tensor number = at::arange(x.size(-1), x.options().dtype(at::kInt));
  const Tensor is_earlier = number.unsqueeze(0).lt(number.unsqueeze(1));
  const auto comes_first = [&](const Tensor& a, const Tensor& b) { return descending ? is_less(b, a) : is_less(a, b); };
  const Tensor before = at::where(is_earlier, comes_first(each, other).logical_not(), comes_first(other, each));
  return before.sum(-1, false, at::kInt);
}

/// The least value of x's dtype.
Tensor least_like(const Tensor& x) {
  if (at::isFloatingType(x.scalar_type())) return number_like(-kInfinity, x);
  if (x.scalar_type() == at::kLong) return number_like(std::numeric_limits<int64_t>::min(), x);
  if (x.scalar_type() == at::kInt) return number_like(std::numeric_limits<int32_t>::min(), x);
  return number_like(x.scalar_type() == at::kShort ? -32768 : x.scalar_type() == at::kChar ? -128 : 0, x);
}

/// The elements that have the places `wanted`, [count] or [..., 1], and where they are.
Pair at_places(const Tensor& x, const Tensor& places, const Tensor& wanted) {
  const Tensor is_there = places.unsqueeze(-2).eq(wanted.unsqueeze(-1));  // [..., wanted, n]
  const Tensor number = at::arange(x.size(-1), x.options().dtype(at::kInt));
  const Tensor found = select(is_there, number, at::Scalar(0)).sum(-1, false, at::kInt).to(at::kLong);
  // Not by their indices in memory, which a stream doesn't have. A maximum keeps the sign of a zero.
  const Tensor chosen = at::where(is_there, x.unsqueeze(-2), least_like(x));
  return {x.scalar_type() == at::kBool ? chosen.any(-1) : chosen.amax(-1), found};
}

Tensor numbers(const Tensor& x, int64_t first, int64_t count) {
  return at::arange(first, first + count, x.options().dtype(at::kInt));
}

/// The elements of the places first, ... along a dim.
Pair in_order(const Tensor& x, int64_t dim, bool descending, int64_t first, int64_t count) {
  if (x.dim() == 0) return {x.clone(), at::zeros_like(x, x.options().dtype(at::kLong))};
  const Tensor rows = x.movedim(dim, -1);
  auto [values, found] = at_places(rows, places(rows, descending), numbers(x, first, count));
  return {values.movedim(-1, dim), found.movedim(-1, dim)};
}

Pair sort(c10::DispatchKeySet keys, const Tensor& x, int64_t dim, bool descending) {
  if (!is_ours(x, dim)) return kSort.redispatch(below(keys), x, dim, descending);
  return in_order(x, dim, descending, 0, row_length(x, dim));
}

Pair stable_sort(c10::DispatchKeySet keys, const Tensor& x, std::optional<bool> stable, int64_t dim, bool descending) {
  if (!is_ours(x, dim)) return kStableSort.redispatch(below(keys), x, stable, dim, descending);
  return in_order(x, dim, descending, 0, row_length(x, dim));
}

Pair topk(c10::DispatchKeySet keys, const Tensor& x, c10::SymInt k, int64_t dim, bool largest, bool sorted) {
  const auto count = k.maybe_as_int();
  if (!is_ours(x, dim) || x.dim() == 0 || !count || *count < 0 || *count > x.size(dim))
    return kTopk.redispatch(below(keys), x, std::move(k), dim, largest, sorted);
  return in_order(x, dim, largest, 0, *count);
}

Pair without(const Pair& kept, int64_t dim, bool keepdim) {
  if (keepdim || std::get<0>(kept).dim() == 0) return kept;
  return {std::get<0>(kept).squeeze(dim), std::get<1>(kept).squeeze(dim)};
}

Pair kth(c10::DispatchKeySet keys, const Tensor& x, c10::SymInt k, int64_t dim, bool keepdim) {
  const auto number = k.maybe_as_int();
  if (!is_ours(x, dim) || x.dim() == 0 || !number || *number < 1 || *number > x.size(dim))
    return kKth.redispatch(below(keys), x, std::move(k), dim, keepdim);
  return without(in_order(x, dim, false, *number - 1, 1), dim, keepdim);
}

Tensor halved(const Tensor& x) { return x.div(2, "floor"); }

/// The lower of the two elements in the middle, along the last dim, which is kept. A NaN, if there is one, or the
/// median of the numbers.
Pair median_of(const Tensor& rows, bool ignore_nan) {
  const Tensor order = places(rows, false);
  const auto last = static_cast<int32_t>(rows.size(-1) - 1);
  if (!at::isFloatingType(rows.scalar_type())) return at_places(rows, order, numbers(rows, last / 2, 1));
  const Tensor nans = is_nan(rows).sum(-1, true, at::kInt);
  if (ignore_nan) return at_places(rows, order, halved((nans.neg() + last).clamp_min(0)));
  // the first NaN stands behind all numbers
  return at_places(rows, order, at::where(nans.gt(0), nans.neg() + (last + 1), halved(nans * 0 + last)));
}

Pair median_along(const Tensor& x, int64_t dim, bool keepdim, bool ignore_nan) {
  if (x.dim() == 0) return in_order(x, dim, false, 0, 1);
  auto [values, found] = median_of(x.movedim(dim, -1), ignore_nan);
  return without({values.movedim(-1, dim), found.movedim(-1, dim)}, dim, keepdim);
}

template <bool IgnoreNan>
Tensor median(c10::DispatchKeySet keys, const Tensor& x) {
  if (!is_short(x, x.numel())) return (IgnoreNan ? kNanMedian : kMedian).redispatch(below(keys), x);
  return std::get<0>(median_of(x.flatten(), IgnoreNan)).squeeze(-1);
}

template <bool IgnoreNan>
Pair median_dim(c10::DispatchKeySet keys, const Tensor& x, int64_t dim, bool keepdim) {
  if (!is_ours(x, dim)) return (IgnoreNan ? kNanMedianDim : kMedianDim).redispatch(below(keys), x, dim, keepdim);
  return median_along(x, dim, keepdim, IgnoreNan);
}

/// Where elements would stand in sorted rows: the number of those before them.
Tensor searched(c10::DispatchKeySet keys, const Tensor& sorted, const Tensor& x, bool out_int32, bool right,
                OptionalWord side, const OptionalTensor& sorter) {
  const bool is_usual = sorted.dim() > 0 && is_ours(sorted, -1) && x.numel() > 0 && !sorter &&
                        (sorted.dim() == 1 || (x.dim() == sorted.dim() && sorted.sizes().slice(0, sorted.dim() - 1) ==
                                                                              x.sizes().slice(0, sorted.dim() - 1)));
  if (!is_usual) return kPlaces.redispatch(below(keys), sorted, x, out_int32, right, side, sorter);
  const Tensor rows = sorted.dim() == 1 ? sorted : sorted.unsqueeze(-2), each = x.unsqueeze(-1);
  const bool is_right = right || (side && *side == "right");
  const Tensor before = (is_right ? rows.gt(each) : rows.ge(each)).logical_not();
  return before.sum(-1, false, at::kInt).to(out_int32 ? at::kInt : at::kLong);
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("sort", sort);
  m.impl("sort.stable", stable_sort);
  m.impl("topk", topk);
  m.impl("kthvalue", kth);
  m.impl("median", median<false>);
  m.impl("median.dim", median_dim<false>);
  m.impl("nanmedian", median<true>);
  m.impl("nanmedian.dim", median_dim<true>);
  m.impl("searchsorted.Tensor", searched);
}
