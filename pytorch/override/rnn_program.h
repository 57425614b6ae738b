#pragma once

#include "ir/program.h"

namespace weft::override_kernels {

enum class Cell : uint8_t { kGru, kLstm, kRnnTanh, kRnnRelu };

/// gru, lstm, rnn_tanh, rnn_relu.
std::string name_of(Cell cell);
/// Rows of a weight in units of the hidden size: 3, 4, 1, 1.
int64_t gates_of(Cell cell);

/// What makes one program: everything about an nn.GRU, nn.LSTM or nn.RNN but T and B.
struct RnnConfig {
  Cell cell;
  DType dtype;
  bool biases;
  int64_t layers, input_size, hidden_size;

  auto operator<=>(const RnnConfig&) const = default;
};

/// The stack of layers as a program, time first: (x [T,B,I], h0 [L,B,H], lstm: c0 [L,B,H], then a layer's w_ih, w_hh
/// and, with biases, b_ih, b_hh) -> (y [T,B,H], hn [L,B,H], lstm: cn [L,B,H]). A step is written as PyTorch documents
/// it, input projection and all: taking that out of the loop is the passes' work.
ir::Program rnn_program(const RnnConfig& config);

}  // namespace weft::override_kernels
