#include "override/rnn_program.h"

#include "ir/builder.h"

namespace weft::override_kernels {
namespace {

using ir::Builder;
using ir::ValueId;

struct LayerWeights {
  ValueId w_ih, w_hh, b_ih = ir::kNoValue, b_hh = ir::kNoValue;
};

class RnnBuilder {
 public:
  explicit RnnBuilder(const RnnConfig& config) : config_(config), builder_(program_, program_.body) {
    program_.name = name_of(config.cell);
  }

  ir::Program build() {
    const ir::Dim steps = ir::Dim::symbol("T"), batch = ir::Dim::symbol("B");
    ValueId sequence = input({steps, batch, config_.input_size}, "x");
    std::vector<ValueId> initial;  // by carry: h, then c
    for (const char* name : {"h0", "c0"}) {
      if (initial.size() < carries()) initial.push_back(input({config_.layers, batch, config_.hidden_size}, name));
    }
    std::vector<LayerWeights> weights;
    for (int64_t layer = 0; layer < config_.layers; ++layer) weights.push_back(weight_inputs(layer));

    std::vector<std::vector<ValueId>> last(carries());  // [carry][layer], each [1,B,H]
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      std::vector<ValueId> inits;
      for (ValueId all : initial) inits.push_back(layer_of(all, layer));
      auto step = [&](Builder& body, std::span<const ValueId> carry, std::span<const ValueId> xs) {
        auto next = this->step(body, weights[layer], xs[0], carry);
        return Builder::StepResults{next, {next[0]}};
      };
      auto results = builder_.scan(inits, {sequence}, steps, false, step);
      for (size_t i = 0; i < carries(); ++i) {
        last[i].push_back(builder_.reshape(results[i], {1, batch, config_.hidden_size}));
      }
      sequence = results.back();
    }
    std::vector<ValueId> returned{sequence};
    for (auto& layers : last) returned.push_back(layers.size() == 1 ? layers[0] : builder_.concat(layers, 0));
    builder_.ret(std::move(returned));
    return std::move(program_);
  }

 private:
  size_t carries() const { return config_.cell == Cell::kLstm ? 2 : 1; }

  ValueId input(ir::Shape shape, std::string name) {
    return builder_.input({config_.dtype, std::move(shape)}, std::move(name));
  }

  LayerWeights weight_inputs(int64_t layer) {
    std::string suffix = "_l" + std::to_string(layer);
    int64_t rows = gates_of(config_.cell) * config_.hidden_size;
    LayerWeights weights;
    weights.w_ih = input({rows, layer == 0 ? config_.input_size : config_.hidden_size}, "w_ih" + suffix);
    weights.w_hh = input({rows, config_.hidden_size}, "w_hh" + suffix);
    if (config_.biases) {
      weights.b_ih = input({rows}, "b_ih" + suffix);
      weights.b_hh = input({rows}, "b_hh" + suffix);
    }
    return weights;
  }

  /// [B,H] of one layer from [L,B,H].
  ValueId layer_of(ValueId all, int64_t layer) {
    if (config_.layers > 1) all = builder_.slice(all, 0, layer, layer + 1);
    return builder_.reshape(all, {ir::Dim::symbol("B"), config_.hidden_size});
  }

  /// v W^T + b: [B, gates * H].
  ValueId affine(Builder& body, ValueId v, ValueId weight, ValueId bias) {
    ValueId product = body.matmul(v, weight, true);
    if (bias == ir::kNoValue) return product;
    ir::Shape shape = body.type(product).shape;
    return body.add(product, body.broadcast_trailing(bias, shape));
  }

  /// The next carries, h first.
  std::vector<ValueId> step(Builder& body, const LayerWeights& w, ValueId x, std::span<const ValueId> carry) {
    ValueId from_x = affine(body, x, w.w_ih, w.b_ih), from_h = affine(body, carry[0], w.w_hh, w.b_hh);
    switch (config_.cell) {
      case Cell::kGru:
        return gru_step(body, from_x, from_h, carry[0]);
      case Cell::kLstm:
        return lstm_step(body, body.add(from_x, from_h), carry[1]);
      case Cell::kRnnTanh:
        return {body.tanh(body.add(from_x, from_h))};
      case Cell::kRnnRelu:
        return {body.relu(body.add(from_x, from_h))};
    }
    internal_error("no cell number {}", static_cast<int>(config_.cell));
  }

  ValueId gate(Builder& body, ValueId all, int64_t index) {
    return body.slice(all, 1, index * config_.hidden_size, (index + 1) * config_.hidden_size);
  }

  /// Gates r, z, n, the reset applied after the product, as PyTorch and cuDNN have it; h' = (h - n) z + n.
  std::vector<ValueId> gru_step(Builder& body, ValueId from_x, ValueId from_h, ValueId h) {
    ValueId r = body.sigmoid(body.add(gate(body, from_x, 0), gate(body, from_h, 0)));
    ValueId z = body.sigmoid(body.add(gate(body, from_x, 1), gate(body, from_h, 1)));
    ValueId n = body.tanh(body.add(gate(body, from_x, 2), body.mul(r, gate(body, from_h, 2))));
    return {body.add(body.mul(body.sub(h, n), z), n)};
  }

  /// Gates i, f, g, o.
  std::vector<ValueId> lstm_step(Builder& body, ValueId gates, ValueId c) {
    ValueId i = body.sigmoid(gate(body, gates, 0)), f = body.sigmoid(gate(body, gates, 1));
    ValueId g = body.tanh(gate(body, gates, 2)), o = body.sigmoid(gate(body, gates, 3));
    ValueId next = body.add(body.mul(f, c), body.mul(i, g));
    return {body.mul(o, body.tanh(next)), next};
  }

  const RnnConfig& config_;
  ir::Program program_;
  Builder builder_;
};

}  // namespace

std::string name_of(Cell cell) {
  switch (cell) {
    case Cell::kGru:
      return "gru";
    case Cell::kLstm:
      return "lstm";
    case Cell::kRnnTanh:
      return "rnn_tanh";
    case Cell::kRnnRelu:
      return "rnn_relu";
  }
  internal_error("no cell number {}", static_cast<int>(cell));
}

int64_t gates_of(Cell cell) { return cell == Cell::kGru ? 3 : cell == Cell::kLstm ? 4 : 1; }

ir::Program rnn_program(const RnnConfig& config) { return RnnBuilder(config).build(); }

}  // namespace weft::override_kernels
