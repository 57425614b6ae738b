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

std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v, double dropout_p,
                                     bool is_causal, const OptionalTensor& attn_mask, std::optional<double> scale) {
  TORCH_CHECK(dropout_p == 0, "scaled_dot_product_attention_flash_attention: dropout is not supported on CPU");
  Tensor scores = at::matmul(wide(q), wide(k).transpose(-2, -1));
  scores = scores * scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  Tensor mask = attn_mask.value_or(Tensor());
  if (is_causal) mask = at::ones({scores.size(-2), scores.size(-1)}, at::kBool).tril();
  if (mask.defined() && mask.scalar_type() == at::kBool)
    mask = select(mask, number_like(0, scores), -std::numeric_limits<double>::infinity());
  if (mask.defined()) scores = scores + mask;
  return {at::matmul(at::_safe_softmax(scores, -1), wide(v)).to(q.scalar_type()), at::logsumexp(scores, -1)};
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
}

}  // namespace weft::decompose
