// Kernels of aten::gru_cell, lstm_cell, rnn_tanh_cell and rnn_relu_cell: single steps, in eager mode only. A compiler
// that traces steps sees PyTorch's composite instead: with these kernels a loop of steps would be T opaque calls to it.

#include <ATen/TensorOperators.h>
#include <ATen/ops/gru_cell_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_cell_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rnn_relu_cell_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_tanh_cell_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "operator/borrowed_tensors.h"
#include "override/composite_checks.h"
#include "override/run.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using at::TensorList;
using Bias = std::optional<Tensor>;
using Tensors = std::vector<Tensor>;
namespace composite = at::compositeimplicitautograd;

/// Whether torch.jit.trace is recording. A graph with `weft::call` could not be loaded without Weft.
bool jit_is_tracing() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer) &&
         !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Tracer);
}

bool is_traced(const Tensor& tensor) {
  return tensor.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::Functionalize}));
}

/// h' and, for an LSTM, c'; empty if the composite is to run.
Tensors step(Cell cell, const Tensor& input, TensorList states, const Tensor& w_ih, const Tensor& w_hh,
             const Bias& b_ih, const Bias& b_hh) {
  auto given = [](const Bias& bias) { return bias && bias->defined(); };
  if (given(b_ih) != given(b_hh)) return {};
  if (c10::impl::TorchDispatchModeTLS::any_modes_set() || jit_is_tracing()) return {};
  torch_operator::BorrowedTensors borrowed;
  for (const Tensor* weight : {&w_ih, &w_hh}) borrowed.append(*weight);
  if (given(b_ih)) {
    for (const Bias* bias : {&b_ih, &b_hh}) borrowed.append(**bias);
  }
  const TensorList params = borrowed;
  RnnCall call{.cell = cell, .input = input, .states = states, .params = params};
  call.has_biases = given(b_ih);
  call.form = RnnConfig::Form::kStep;
  bool traced = is_traced(input) || std::any_of(states.begin(), states.end(), is_traced) ||
                std::any_of(params.begin(), params.end(), is_traced);
  if (traced && unsupported(call).empty()) return {};  // other subclasses are counted below
  return try_run(call);
}

/// Checks a step before PyTorch's composite runs. Biases are added whole, and so checked by the addition.
void check_step(Cell cell, const Tensor& input, TensorList states, const Tensor& w_ih, const Tensor& w_hh) {
  torch_operator::BorrowedTensors weights;
  for (const Tensor* weight : {&w_ih, &w_hh}) weights.append(*weight);
  const TensorList params = weights;
  RnnCall call{.cell = cell, .input = input, .states = states, .params = params};
  call.form = RnnConfig::Form::kStep;
  check_before_composite(call);
}

template <Cell cell, auto fallback>
Tensor step_of_one_state(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                         const Bias& b_ih, const Bias& b_hh) {
  auto out = step(cell, input, hx, w_ih, w_hh, b_ih, b_hh);
  if (!out.empty()) return std::move(out[0]);
  check_step(cell, input, hx, w_ih, w_hh);
  return fallback(input, hx, w_ih, w_hh, b_ih, b_hh);
}

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Bias& b_ih, const Bias& b_hh) {
  auto out = step(Cell::kLstm, input, hx, w_ih, w_hh, b_ih, b_hh);
  if (!out.empty()) return {std::move(out[0]), std::move(out[1])};
  check_step(Cell::kLstm, input, hx, w_ih, w_hh);
  return composite::lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh);
}

/// The pre-activations of all gates, of shape [B, gates * H].
Tensor pre_activations(const Tensor& input, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const Bias& b_ih,
                       const Bias& b_hh) {
  return at::linear(input, w_ih, b_ih) + at::linear(h, w_hh, b_hh);
}

/// The cells under torch.vmap, in operations that have batching rules. PyTorch's composites change tensors in place,
/// which fails where the input is mapped and the state isn't.
Tensor batched_gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Bias& b_ih,
                        const Bias& b_hh) {
  check_step(Cell::kGru, input, hx, w_ih, w_hh);
  const Tensors i = at::linear(input, w_ih, b_ih).chunk(3, 1), h = at::linear(hx, w_hh, b_hh).chunk(3, 1);
  const Tensor reset = at::sigmoid(i[0] + h[0]), update = at::sigmoid(i[1] + h[1]);
  const Tensor candidate = at::tanh(i[2] + reset * h[2]);
  return candidate + update * (hx - candidate);
}

std::tuple<Tensor, Tensor> batched_lstm_cell(const Tensor& input, TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                                             const Bias& b_ih, const Bias& b_hh) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  check_step(Cell::kLstm, input, hx, w_ih, w_hh);
  const Tensors gates = pre_activations(input, hx[0], w_ih, w_hh, b_ih, b_hh).chunk(4, 1);
  Tensor c = at::sigmoid(gates[1]) * hx[1] + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  Tensor h = at::sigmoid(gates[3]) * at::tanh(c);
  return {std::move(h), std::move(c)};
}

template <Cell cell, Tensor (*activation)(const Tensor&)>
Tensor batched_rnn_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Bias& b_ih,
                        const Bias& b_hh) {
  check_step(cell, input, hx, w_ih, w_hh);
  return activation(pre_activations(input, hx, w_ih, w_hh, b_ih, b_hh));
}

void register_batched(torch::Library& m) {
  m.impl("gru_cell", TORCH_FN(batched_gru_cell));
  m.impl("lstm_cell", TORCH_FN(batched_lstm_cell));
  m.impl("rnn_tanh_cell", TORCH_FN((batched_rnn_cell<Cell::kRnnTanh, at::tanh>)));
  m.impl("rnn_relu_cell", TORCH_FN((batched_rnn_cell<Cell::kRnnRelu, at::relu>)));
}

void register_kernels(torch::Library& m) {
  m.impl("gru_cell", TORCH_FN((step_of_one_state<Cell::kGru, composite::gru_cell>)));
  m.impl("lstm_cell", TORCH_FN(lstm_cell));
  m.impl("rnn_tanh_cell", TORCH_FN((step_of_one_state<Cell::kRnnTanh, composite::rnn_tanh_cell>)));
  m.impl("rnn_relu_cell", TORCH_FN((step_of_one_state<Cell::kRnnRelu, composite::rnn_relu_cell>)));
}

}  // namespace

void register_cells_on_device(torch::Library& m) { register_kernels(m); }

}  // namespace weft::override_kernels

TORCH_LIBRARY_IMPL(aten, CPU, m) { weft::override_kernels::register_kernels(m); }
TORCH_LIBRARY_IMPL(aten, AutogradCPU, m) { weft::override_kernels::register_kernels(m); }
TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) { weft::override_kernels::register_batched(m); }
