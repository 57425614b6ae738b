// Pooling to a size, in a program that runs without PyTorch: a dim that has the size already, as the time has, is left
// as it is, and of another one each window is a part with bounds of its own.

#include <ATen/ops/cat.h>

#include "decompose/parts.h"
#include "record/recording.h"

namespace weft::decompose {
namespace {

using Sizes = at::IntArrayRef;
using WithPlaces = std::tuple<Tensor, Tensor>;
using Reduction = Tensor (*)(const Tensor& x, int64_t dim);

const auto kMeans2d = aten<Tensor(const Tensor&, c10::SymIntArrayRef)>("aten::_adaptive_avg_pool2d", "");
const auto kMeans3d = aten<Tensor(const Tensor&, c10::SymIntArrayRef)>("aten::_adaptive_avg_pool3d", "");
const auto kMaxima2d = aten<WithPlaces(const Tensor&, Sizes)>("aten::adaptive_max_pool2d", "");
const auto kMaxima3d = aten<WithPlaces(const Tensor&, Sizes)>("aten::adaptive_max_pool3d", "");

constexpr int64_t kMostWindows = 64;  ///< of a dim, each of which is an operation

Tensor mean(const Tensor& x, int64_t dim) { return x.mean(dim, true); }
Tensor largest(const Tensor& x, int64_t dim) { return x.amax(dim, true); }

/// Window i goes from floor(i n / count) to ceil((i + 1) n / count), by at::native::start_index and end_index.
Tensor pooled_dim(const Tensor& x, int64_t dim, int64_t count, Reduction reduce) {
  const int64_t n = x.size(dim);
  if (n == count) return x;
  if (n % count == 0) return reduce(x.unflatten(dim, {count, n / count}), dim + 1).squeeze(dim + 1);
  std::vector<Tensor> windows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * n / count, end = ((i + 1) * n + count - 1) / count;
    windows.push_back(reduce(x.narrow(dim, begin, end - begin), dim));
  }
  return at::cat(windows, dim);
}

bool is_ours(const Tensor& x, Sizes output) {
  const auto dims = static_cast<int64_t>(output.size());
  if (!record::Recording::is_alone() || x.numel() == 0 || !at::isFloatingType(x.scalar_type())) return false;
  if (x.dim() != dims + 1 && x.dim() != dims + 2) return false;
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t count = output[static_cast<size_t>(i)];
    if (count < 1 || (count > kMostWindows && count != x.size(i - dims))) return false;
  }
  return true;
}

/// The windows of several dims are products of those of each one, and so are means and maxima of them.
Tensor pooled(const Tensor& x, Sizes output, Reduction reduce) {
  Tensor result = x;
  for (size_t i = 0; i < output.size(); ++i)
    result = pooled_dim(result, x.dim() - static_cast<int64_t>(output.size() - i), output[i], reduce);
  return result;
}

/// Accumulated in f32 and rounded once, as by PyTorch's kernels.
template <const auto& Own>
Tensor means(c10::DispatchKeySet keys, const Tensor& x, c10::SymIntArrayRef output) {
  const auto sizes = c10::asIntArrayRefSlowOpt(output);
  if (!sizes || !is_ours(x, *sizes)) return Own.redispatch(below(keys), x, output);
  return pooled(wide(x), *sizes, mean).to(x.scalar_type());
}

/// Where the largest elements are remains PyTorch's, for a program that wants to know it.
template <const auto& Own>
WithPlaces maxima(c10::DispatchKeySet keys, const Tensor& x, Sizes output) {
  const WithPlaces whole = Own.redispatch(below(keys), x, output);
  return is_ours(x, output) ? WithPlaces{pooled(x, output, largest), std::get<1>(whole)} : whole;
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::decompose;
  m.impl("_adaptive_avg_pool2d", means<kMeans2d>);
  m.impl("_adaptive_avg_pool3d", means<kMeans3d>);
  m.impl("adaptive_max_pool2d", maxima<kMaxima2d>);
  m.impl("adaptive_max_pool3d", maxima<kMaxima3d>);
}
