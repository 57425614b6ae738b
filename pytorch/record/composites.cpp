// Composite functions of PyTorch that have another definition in a recording, since PyTorch's own change tensors in
// place or look at values.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool1d_with_indices.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>

#include "operator/aten.h"
#include "record/cells.h"
#include "record/recording.h"
#include "record/whole_calls.h"

namespace weft::record {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The tensor of an optional argument, undefined for None.
Tensor given(const OptionalTensor& tensor) { return tensor.value_or(Tensor()); }

const auto kAtenLinear = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("aten::linear", "")
                             .typed<Tensor(const Tensor&, const Tensor&, const OptionalTensor&)>();

Tensor recorded_linear(c10::DispatchKeySet keys, const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  if (const auto whole = whole_linear(x, weight, given(bias))) return *whole;
  const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::TESTING_ONLY_GenericMode);
  return kAtenLinear.redispatch(keys & below, x, weight, bias);
}

Tensor recorded_gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                         const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  const auto whole = whole_gru_cell({x, h, w_ih, w_hh, given(b_ih), given(b_hh)});
  return whole ? *whole : record::gru_cell(x, h, w_ih, w_hh, b_ih, b_hh);
}

std::tuple<Tensor, Tensor> recorded_lstm_cell(const Tensor& x, at::TensorList hx, const Tensor& w_ih,
                                              const Tensor& w_hh, const OptionalTensor& b_ih,
                                              const OptionalTensor& b_hh) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  const auto whole = whole_lstm_cell({x, hx[0], hx[1], w_ih, w_hh, given(b_ih), given(b_hh)});
  return whole ? *whole : record::lstm_cell(x, hx, w_ih, w_hh, b_ih, b_hh);
}

Tensor recorded_rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                              const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  const auto whole = whole_rnn_tanh_cell({x, h, w_ih, w_hh, given(b_ih), given(b_hh)});
  return whole ? *whole : record::rnn_tanh_cell(x, h, w_ih, w_hh, b_ih, b_hh);
}

Tensor recorded_rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                              const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  const auto whole = whole_rnn_relu_cell({x, h, w_ih, w_hh, given(b_ih), given(b_hh)});
  return whole ? *whole : record::rnn_relu_cell(x, h, w_ih, w_hh, b_ih, b_hh);
}

/// Does not look at the values. An index that is no class gives zeros.
Tensor one_hot(const Tensor& x, int64_t classes) {
  if (classes < 0) throw ReadsValueError("one_hot without num_classes");
  return x.unsqueeze(-1).eq(at::arange(classes)).to(at::kLong);
}

/// PyTorch's implementation clamps the norms in place, hidden from autograd.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps) {
  auto shown = at::broadcast_tensors({a, b});
  auto scaled = [&](const Tensor& x) { return x / at::linalg_vector_norm(x, 2, dim, true).clamp_min(eps); };
  return (scaled(shown[0]) * scaled(shown[1])).sum(dim);
}

Tensor rrelu(const Tensor& x, const at::Scalar& lower, const at::Scalar& upper, bool training,
             std::optional<at::Generator>) {
  if (training) throw UnsupportedError("rrelu: random numbers that can't be drawn ahead");
  return at::where(x.gt(0), x, x * ((lower.toDouble() + upper.toDouble()) / 2));
}

/// Without gradients, PyTorch's function has its own loop over the elements.
Tensor max_pool1d(const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                  at::IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(at::max_pool1d_with_indices(x, kernel, stride, padding, dilation, ceil_mode));
}

}  // namespace
}  // namespace weft::record

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  using namespace weft::record;
  m.impl("linear", recorded_linear);
  m.impl("gru_cell", recorded_gru_cell);
  m.impl("lstm_cell", recorded_lstm_cell);
  m.impl("rnn_tanh_cell", recorded_rnn_tanh_cell);
  m.impl("rnn_relu_cell", recorded_rnn_relu_cell);
  m.impl("one_hot", one_hot);
  m.impl("cosine_similarity", cosine_similarity);
  m.impl("rrelu", rrelu);
  m.impl("max_pool1d", max_pool1d);
}
