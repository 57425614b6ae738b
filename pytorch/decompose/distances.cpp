// Distances between the rows of two matrices, in a program that runs without PyTorch. PyTorch computes them by a kernel
// of its own for few rows and by a product for many; here they are sums over differences for any number of rows.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cdist.h>

#include <cmath>

#include "decompose/parts.h"
#include "record/recording.h"

namespace weft::decompose {
namespace {

const auto kDistances = aten<Tensor(const Tensor&, const Tensor&, double, std::optional<int64_t>)>("aten::cdist", "");

Tensor distances(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b, double p, std::optional<int64_t> mode) {
  const bool is_usual = record::Recording::is_alone() && a.dim() >= 2 && b.dim() >= 2 && a.numel() > 0 &&
                        b.numel() > 0 && a.size(-1) == b.size(-1) && at::isFloatingType(a.scalar_type()) &&
                        a.scalar_type() == b.scalar_type() && p >= 0;
  if (!is_usual) return kDistances.redispatch(below(keys), a, b, p, mode);
  const Tensor by = a.unsqueeze(-2) - b.unsqueeze(-3);  // [..., rows of a, rows of b, elements]
  if (p == 2) return by.square().sum(-1).sqrt();
  if (p == 1) return by.abs().sum(-1);
  if (p == 0) return by.ne(0).to(a.scalar_type()).sum(-1);
  if (std::isinf(p)) return by.abs().amax(-1);
  return by.abs().pow(p).sum(-1).pow(1 / p);
}

}  // namespace
}  // namespace weft::decompose

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) { m.impl("cdist", weft::decompose::distances); }
