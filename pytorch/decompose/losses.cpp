// Losses with a margin. Elements within the margin, and NaNs, add nothing to a loss and have no gradient.

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/atleast_1d.h>
#include <ATen/ops/atleast_2d.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/where.h>

#include "decompose/decompose.h"
#include "decompose/parts.h"

namespace weft::decompose {
namespace {

/// Reduces the losses of rows.
Tensor over_rows(const Tensor& loss, int64_t reduction, at::IntArrayRef unreduced) {
  if (reduction == at::Reduction::Mean) return loss.mean();
  if (reduction == at::Reduction::Sum) return loss.sum();
  return loss.reshape(unreduced);
}

/// The sum of (margin - x[target] + x[class])^p over all classes but the target, in PyTorch's order, which decides at
/// ties.
Tensor multi_margin_loss(const Tensor& given, const Tensor& label, const at::Scalar& p, const at::Scalar& margin,
                         const OptionalTensor& weight, int64_t reduction) {
  TORCH_CHECK(p.equal(1) || p.equal(2), "only p == 1 and p == 2 supported");
  Tensor x = at::atleast_2d(wide(given)), target = at::atleast_1d(label).unsqueeze(1);
  Tensor excess = at::rsub(x.gather(1, target), margin) + x;
  Tensor counts = excess.gt(0).bitwise_and(positions(x, 1).ne(target));
  Tensor loss = select(counts, excess, 0.0);
  if (p.equal(2)) loss = loss * loss;
  if (weight && weight->defined()) loss = loss * wide(*weight).index_select(0, target.squeeze(1)).unsqueeze(1);
  return over_rows(loss.mean(1), reduction, label.sizes()).to(given.scalar_type());
}

/// The loss and, for each class, whether it is a label. A row's labels end at the first -1.
std::tuple<Tensor, Tensor> multilabel_margin_loss(const Tensor& given, const Tensor& labels, int64_t reduction) {
  Tensor x = at::atleast_2d(wide(given)), target = at::atleast_2d(labels), classes = positions(x, 1);
  Tensor end = at::where(target.lt(0), classes, x.size(1)).amin(1, true);
  Tensor listed = classes.lt(end).unsqueeze(2);
  Tensor is_label = target.unsqueeze(2).eq(classes.unsqueeze(1)).bitwise_and(listed).any(1);
  // [row, label, class]
  Tensor at_label = x.gather(1, target.clamp_min(0)).unsqueeze(2);
  Tensor excess = at::rsub(at_label, 1) + x.unsqueeze(1);
  Tensor counts = excess.gt(0).bitwise_and(listed).bitwise_and(is_label.unsqueeze(1).bitwise_not());
  Tensor loss = select(counts, excess, 0.0).sum(1).mean(1);
  Dims unreduced(given.sizes().begin(), given.sizes().end());
  if (!unreduced.empty()) unreduced.pop_back();
  return {over_rows(loss, reduction, unreduced).to(given.scalar_type()),
          is_label.to(given.scalar_type()).reshape(labels.sizes())};
}

}  // namespace

void add_losses(Table& table) {
  table.add("multi_margin_loss", "", multi_margin_loss);
  table.add("multilabel_margin_loss_forward", "", multilabel_margin_loss);
}

}  // namespace weft::decompose
