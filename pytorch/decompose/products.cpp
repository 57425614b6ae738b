#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "decompose/decompose.h"
#include "decompose/parts.h"
#include "record/cells.h"

namespace weft::decompose {
namespace {

/// beta * x + alpha * product. If beta is 0, x is ignored, NaNs included.
Tensor plus(const Tensor& x, const Tensor& product, const at::Scalar& beta, const at::Scalar& alpha) {
  Tensor scaled = alpha.equal(1) ? product : product * alpha;
  if (beta.equal(0)) return scaled;
  return (beta.equal(1) ? x : x * beta) + scaled;
}

Tensor addmv(const Tensor& x, const Tensor& matrix, const Tensor& vector, const at::Scalar& beta,
             const at::Scalar& alpha) {
  return plus(x, at::mv(matrix, vector), beta, alpha);
}

Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  return plus(x, a.unsqueeze(1) * b.unsqueeze(0), beta, alpha);
}

Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  return plus(x, at::bmm(a, b).sum(0), beta, alpha);
}

Tensor expanded(Tensor x, at::IntArrayRef dims) {
  std::vector<int64_t> ascending = dims.vec();
  std::ranges::sort(ascending);
  for (int64_t dim : ascending) x = x.unsqueeze(dim);
  return x;
}

Tensor trilinear(const Tensor& a, const Tensor& b, const Tensor& c, at::IntArrayRef expand1, at::IntArrayRef expand2,
                 at::IntArrayRef expand3, at::IntArrayRef sumdim, int64_t /*unroll_dim*/) {
  return (expanded(a, expand1) * expanded(b, expand2) * expanded(c, expand3)).sum(sumdim);
}

/// The products of queries and keys that attention takes the softmax of.
Tensor attention_scores(const Tensor& q, const Tensor& k, bool is_causal, const OptionalTensor& attn_mask,
                        double scale) {
  Tensor scores = at::matmul(wide(q), wide(k).transpose(-2, -1));
  scores = scores * scale;
  Tensor mask = attn_mask.value_or(Tensor());
  if (is_causal) mask = at::ones({scores.size(-2), scores.size(-1)}, at::kBool).tril();
  if (mask.defined() && mask.scalar_type() == at::kBool)
    mask = select(mask, number_like(0, scores), -std::numeric_limits<double>::infinity());
  return mask.defined() ? scores + mask : scores;
}

/// Keys or values with as many heads as the queries have: each head of theirs serves several.
Tensor with_heads_of(const Tensor& q, const Tensor& k) {
  if (k.dim() != 4 || k.size(1) == q.size(1)) return k;
  const int64_t shared = q.size(1) / k.size(1);
  return k.unsqueeze(2)
      .expand({k.size(0), k.size(1), shared, k.size(2), k.size(3)})
      .reshape({k.size(0), q.size(1), k.size(2), k.size(3)});
}

/// The gradient of with_heads_of.
Tensor sum_of_heads(const Tensor& grad, const Tensor& k) {
  if (k.dim() != 4 || k.size(1) == grad.size(1)) return grad;
  return grad.reshape({k.size(0), k.size(1), grad.size(1) / k.size(1), k.size(2), k.size(3)}).sum(2);
}

/// The tensor laid out with the heads behind the sequence. PyTorch's attention lays out its gradients so, and its
/// result for queries laid out so; views recorded behind it depend on that.
Tensor with_heads_last(const Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); }

double scale_of(const Tensor& q, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
}

std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v, double dropout_p,
                                     bool is_causal, const OptionalTensor& attn_mask, std::optional<double> scale) {
  TORCH_CHECK(dropout_p == 0, "scaled_dot_product_attention_flash_attention: dropout is not supported on CPU");
  const Tensor scores = attention_scores(q, with_heads_of(q, k), is_causal, attn_mask, scale_of(q, scale));
  const Tensor out = at::matmul(at::_safe_softmax(scores, -1), wide(with_heads_of(q, v))).to(q.scalar_type());
  const bool is_heads_last = q.dim() == 4 && q.stride(1) < q.stride(2);
  return {is_heads_last ? with_heads_last(out) : out, at::logsumexp(scores, -1)};
}

/// Computes the scores and their softmax again. If the forward is in the same program, its scores and softmax serve.
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                      const Tensor& v, const Tensor& out, const Tensor& /*logsumexp*/,
                                                      double /*dropout_p*/, bool is_causal,
                                                      const OptionalTensor& attn_mask, std::optional<double> scale) {
  const double factor = scale_of(q, scale);
  const Tensor weights = at::_safe_softmax(attention_scores(q, with_heads_of(q, k), is_causal, attn_mask, factor), -1);
  const Tensor dy = wide(grad), dweights = at::matmul(dy, wide(with_heads_of(q, v)).transpose(-2, -1));
  const Tensor mean = (dy * wide(out)).sum(at::IntArrayRef{-1}, /*keepdim=*/true);
  const Tensor dscores = weights * (dweights - mean) * factor;
  return {with_heads_last(at::matmul(dscores, wide(with_heads_of(q, k))).to(q.scalar_type())),
          with_heads_last(sum_of_heads(at::matmul(dscores.transpose(-2, -1), wide(q)), k).to(k.scalar_type())),
          with_heads_last(sum_of_heads(at::matmul(weights.transpose(-2, -1), dy), v).to(v.scalar_type()))};
}

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) { return at::linear(x, weight, bias); }

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& w_ih,
                                     const Tensor& w_hh, const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  return record::lstm_cell(x, {h, c}, w_ih, w_hh, b_ih, b_hh);
}

}  // namespace

void add_products(Table& table) {
  table.add_own("linear", linear);
  table.add_own("gru_cell", record::gru_cell);
  table.add_own("lstm_cell", lstm_cell);
  table.add_own("rnn_tanh_cell", record::rnn_tanh_cell);
  table.add_own("rnn_relu_cell", record::rnn_relu_cell);
  table.add("addmv", "", addmv);
  table.add("addr", "", addr);
  table.add("addbmm", "", addbmm);
  table.add("_trilinear", "", trilinear);
  table.add("_scaled_dot_product_flash_attention_for_cpu", "", attention);
  table.add("_scaled_dot_product_flash_attention_for_cpu_backward", "", attention_backward);
}

}  // namespace weft::decompose
