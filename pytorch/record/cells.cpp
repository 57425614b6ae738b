#include "record/cells.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

#include <vector>

namespace weft::record {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace {

/// A part for each gate. Where the sum has another size, as with weights of a wrong one, chunk gives fewer parts.
std::vector<Tensor> parts_of(const Tensor& sum, int64_t gates, const Tensor& state) {
  int64_t wanted = gates * state.size(-1);
  TORCH_CHECK(sum.size(-1) == wanted, "the weights of a recurrent cell make ", sum.size(-1), " features, but ", gates,
              " gates of a state of ", state.size(-1), " are ", wanted);
  return sum.chunk(gates, -1);
}

}  // namespace

Tensor gru_from_gates(const Tensor& x, const Tensor& y, const Tensor& h) {
  auto from_x = parts_of(x, 3, h), from_h = parts_of(y, 3, h);
  Tensor r = at::sigmoid(from_x[0] + from_h[0]), z = at::sigmoid(from_x[1] + from_h[1]);
  Tensor n = at::tanh(from_x[2] + r * from_h[2]);
  return (h - n) * z + n;
}

std::tuple<Tensor, Tensor> lstm_from_gates(const Tensor& sum, const Tensor& before) {
  auto gates = parts_of(sum, 4, before);
  Tensor c = at::sigmoid(gates[1]) * before + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  return {at::sigmoid(gates[3]) * at::tanh(c), c};
}

Tensor gru_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh, const OptionalTensor& b_ih,
                const OptionalTensor& b_hh) {
  return gru_from_gates(at::linear(x, w_ih, b_ih), at::linear(h, w_hh, b_hh), h);
}

std::tuple<Tensor, Tensor> lstm_cell(const Tensor& x, at::TensorList hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  return lstm_from_gates(at::linear(x, w_ih, b_ih) + at::linear(hx[0], w_hh, b_hh), hx[1]);
}

Tensor rnn_tanh_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  return at::tanh(at::linear(x, w_ih, b_ih) + at::linear(h, w_hh, b_hh));
}

Tensor rnn_relu_cell(const Tensor& x, const Tensor& h, const Tensor& w_ih, const Tensor& w_hh,
                     const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  return at::relu(at::linear(x, w_ih, b_ih) + at::linear(h, w_hh, b_hh));
}

}  // namespace weft::record
