#include "device/graph/views.h"

#include <algorithm>

namespace weft::device {
namespace {

struct Dim {
  int64_t size, stride;
  int64_t end() const { return size * stride; }
};
using Dims = c10::SmallVector<Dim, 6>;

/// The dims of more than one element, except those with stride 0.
Dims effective(at::IntArrayRef sizes, at::IntArrayRef strides) {
  Dims dims;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && strides[i] != 0) dims.push_back({sizes[i], strides[i]});
  return dims;
}

Dims contiguous(at::IntArrayRef sizes) {
  Dims dims(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) dims[i] = {sizes[i], stride};
  return dims;
}

/// Splits each dim at every stride in `cuts` that divides it evenly.
Dims divided(const Dims& dims, c10::SmallVector<int64_t, 12> cuts) {
  std::ranges::sort(cuts, std::greater<>());
  Dims found;
  for (Dim dim : dims) {
    for (int64_t cut : cuts) {
      if (cut <= dim.stride || cut >= dim.end() || cut % dim.stride != 0 || dim.end() % cut != 0) continue;
      found.push_back({dim.end() / cut, cut});
      dim.size = cut / dim.stride;
    }
    found.push_back(dim);
  }
  return found;
}

enum class Cuts : uint8_t { kNone, kStrides, kAll };

c10::SmallVector<int64_t, 12> cuts_of(const Dims& dims, Cuts which) {
  c10::SmallVector<int64_t, 12> cuts;
  for (const Dim& dim : dims) {
    if (which != Cuts::kNone) cuts.push_back(dim.stride);
    if (which == Cuts::kAll) cuts.push_back(dim.end());
  }
  return cuts;
}

/// The steps of the view, if each of its dims lies within one dim of the base.
std::optional<ViewSteps> match(const Dims& base, const Dims& view, int64_t offset) {
  ViewSteps steps;
  c10::SmallVector<int64_t, 6> reader(base.size(), -1);
  for (size_t v = 0; v < view.size(); ++v) {
    auto within = [&](const Dim& dim) { return dim.stride <= view[v].stride && view[v].stride < dim.end(); };
    const auto found = std::ranges::find_if(base, within);
    if (found == base.end() || view[v].stride % found->stride != 0) return std::nullopt;
    int64_t& reads = reader[static_cast<size_t>(found - base.begin())];
    if (reads >= 0) return std::nullopt;
    reads = static_cast<int64_t>(v);
  }
  c10::SmallVector<int64_t, 6> place(view.size());
  int64_t kept = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const int64_t start = offset / base[i].stride;
    offset %= base[i].stride;
    const bool is_dropped = reader[i] < 0;
    const Dim read = is_dropped ? Dim{1, base[i].stride} : view[static_cast<size_t>(reader[i])];
    const int64_t step = read.stride / base[i].stride;
    if (start + (read.size - 1) * step >= base[i].size) return std::nullopt;
    steps.refined.push_back(base[i].size);
    steps.slices.push_back({start, read.size, step, is_dropped});
    if (!is_dropped) place[static_cast<size_t>(reader[i])] = kept++;
  }
  if (offset != 0) return std::nullopt;
  steps.order.assign(place.begin(), place.end());
  return steps;
}

}  // namespace

std::optional<ViewSteps> find_steps(at::IntArrayRef base, at::IntArrayRef sizes, at::IntArrayRef strides,
                                    int64_t offset) {
  const Dims whole = contiguous(base), view = effective(sizes, strides);
  for (const Cuts which : {Cuts::kNone, Cuts::kStrides, Cuts::kAll}) {
    const Dims refined = divided(whole, cuts_of(view, which));
    auto steps = match(refined, divided(view, cuts_of(refined, Cuts::kStrides)), offset);
    if (!steps) continue;
    for (size_t i = 0; i < sizes.size(); ++i) {
      steps->shape.push_back(strides[i] == 0 ? 1 : sizes[i]);
      steps->is_expanded |= strides[i] == 0 && sizes[i] != 1;
    }
    return steps;
  }
  return std::nullopt;
}

std::optional<Sizes> dense_order(at::IntArrayRef sizes, at::IntArrayRef strides) {
  Sizes order;
  for (size_t i = 0; i < sizes.size(); ++i) order.push_back(static_cast<int64_t>(i));
  const auto size = [&](int64_t dim) { return sizes[static_cast<size_t>(dim)]; };
  const auto stride = [&](int64_t dim) { return strides[static_cast<size_t>(dim)]; };
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return stride(a) != stride(b) ? stride(a) > stride(b) : size(a) > size(b); });
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (size(order[i]) != 1 && stride(order[i]) != expected) return std::nullopt;
    expected *= size(order[i]);
  }
  return order;
}

std::optional<Sizes> dense_sizes(at::IntArrayRef sizes, at::IntArrayRef strides) {
  auto order = dense_order(sizes, strides);
  if (!order) return std::nullopt;
  for (int64_t& dim : *order) dim = sizes[static_cast<size_t>(dim)];
  return order;
}

}  // namespace weft::device
