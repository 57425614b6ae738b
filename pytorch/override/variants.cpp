#include "override/variants.h"

#include "base/error.h"
#include "ir/inline.h"
#include "ir/text/parser.h"

namespace weft::override_kernels {
namespace {

using ir::Builder;
using ir::OpCode;
using ir::ValueId;
using Coupling = CellVariant::Coupling;

constexpr double kLayerNormEpsilon = 1e-5;  // nn.LayerNorm's

ValueId constant(Builder& body, double value, ValueId like) { return body.constant(value, body.type(like)); }

/// A clamp with the gradient of PyTorch's, which passes at the bounds too.
ValueId clamp(Builder& body, ValueId x, double bound) {
  ValueId low = constant(body, -bound, x), high = constant(body, bound, x);
  x = body.select(body.binary(OpCode::kLt, x, low), low, x);
  return body.select(body.binary(OpCode::kGt, x, high), high, x);
}

/// relu6(x + 3) / 6, the gradient 0 at the kinks, as PyTorch has it.
ValueId hard_sigmoid(Builder& body, ValueId x) {
  ValueId rising = body.mul(body.add(x, constant(body, 3, x)), constant(body, 1.0 / 6, x));
  ValueId off = body.binary(OpCode::kLe, x, constant(body, -3, x)),
          on = body.binary(OpCode::kGe, x, constant(body, 3, x));
  return body.select(off, constant(body, 0, x), body.select(on, constant(body, 1, x), rising));
}

ValueId activate(Builder& body, const std::string& name, ValueId x) {
  if (name == "sigmoid") return body.sigmoid(x);
  if (name == "tanh") return body.tanh(x);
  if (name == "relu") return body.relu(x);
  if (name == "hard_sigmoid") return hard_sigmoid(body, x);
  if (name == "identity") return x;
  return ir::inline_program(body, ir::parse(name), std::array{x}).at(0);
}

class VariantStep {
 public:
  VariantStep(Builder& body, Cell cell, const CellVariant& variant, const CellWeights& weights,
              const VariantWeights& more)
      : body_(body), cell_(cell), variant_(variant), weights_(weights), more_(more) {}

  /// One step. The recurrent product reads `h` (rounded or masked), everything else the carry.
  std::vector<ValueId> operator()(ValueId x, ValueId h, std::span<const ValueId> carry) {
    switch (cell_) {
      case Cell::kGru:
        return gru(x, h, carry[0]);
      case Cell::kLstm:
        return lstm(x, h, carry[1]);
      case Cell::kRnnTanh:
      case Cell::kRnnRelu:
        return {clipped(hidden(body_.add(from_x(x), from_h(h))))};
    }
    internal_error("no cell number {}", static_cast<int>(cell_));
  }

 private:
  ValueId gate(ValueId x) {
    return activate(body_, variant_.gate_activation.empty() ? "sigmoid" : variant_.gate_activation, x);
  }
  ValueId hidden(ValueId x) {
    const char* own = cell_ == Cell::kRnnRelu ? "relu" : "tanh";
    return activate(body_, variant_.activation.empty() ? own : variant_.activation, x);
  }
  ValueId clipped(ValueId x) { return variant_.clip > 0 ? clamp(body_, x, variant_.clip) : x; }

  ValueId vector_like(ValueId vector, ValueId like) { return body_.broadcast_trailing(vector, body_.type(like).shape); }

  /// (v - mean) / sqrt(variance + eps) * gain over the last dim of [B, N].
  ValueId normalised(ValueId v, ValueId gain) {
    const ir::Shape shape = body_.type(v).shape;
    const double share = 1.0 / static_cast<double>(shape[1].constant());
    auto mean = [&](ValueId of) {
      ValueId sum = body_.reduce_sum(of, {1});
      return body_.mul(sum, constant(body_, share, sum));
    };
    ValueId centred = body_.sub(v, body_.broadcast(mean(v), shape, {0}));
    ValueId variance = mean(body_.mul(centred, centred));
    ValueId shifted = body_.add(variance, constant(body_, kLayerNormEpsilon, variance));
    ValueId scale = body_.unary(OpCode::kRsqrt, shifted);
    ValueId unit = body_.mul(centred, body_.broadcast(scale, shape, {0}));
    return body_.mul(unit, vector_like(gain, unit));
  }

  /// Rows [from, to) gates of a weight, a bias or a gain.
  ValueId rows(ValueId weight, int64_t from, int64_t to) {
    int64_t size = body_.type(weight).shape[0].constant() / gates_of(cell_);
    return body_.slice(weight, 0, from * size, to * size);
  }

  /// The rows of the gates that are computed. An LSTM with coupled gates has no rows for i or for f.
  ValueId computed_rows(ValueId weight) {
    switch (variant_.coupling) {
      case Coupling::kNone:
        return weight;
      case Coupling::kInput:
        return body_.concat({rows(weight, 0, 1), rows(weight, 2, 4)}, 0);
      case Coupling::kForget:
        return rows(weight, 1, 4);
    }
    internal_error("no coupling number {}", static_cast<int>(variant_.coupling));
  }

  struct Affine {
    ValueId weight, bias, gain;
  };

  /// LN(v W^T) + b.
  ValueId apply(const Affine& affine, ValueId v) {
    ValueId product = body_.matmul(v, affine.weight, true);
    if (affine.gain != ir::kNoValue) product = normalised(product, affine.gain);
    return affine.bias == ir::kNoValue ? product : body_.add(product, vector_like(affine.bias, product));
  }

  template <typename F>
  static Affine map(const Affine& affine, F&& f) {
    auto each = [&](ValueId value) { return value == ir::kNoValue ? value : f(value); };
    return {each(affine.weight), each(affine.bias), each(affine.gain)};
  }

  Affine of_x() const { return {weights_.w_ih, weights_.b_ih, more_.ln_ih}; }
  Affine of_h() const { return {weights_.w_hh, weights_.b_hh, more_.ln_hh}; }
  ValueId from_x(ValueId x) {
    return apply(map(of_x(), [&](ValueId v) { return computed_rows(v); }), x);
  }
  ValueId from_h(ValueId h) {
    return apply(map(of_h(), [&](ValueId v) { return computed_rows(v); }), h);
  }

  /// Column block `index` of `size` columns.
  ValueId block(ValueId all, int64_t index, int64_t size) {
    return body_.slice(all, 1, index * size, (index + 1) * size);
  }

  std::vector<ValueId> gru(ValueId x, ValueId h, ValueId old) {
    const int64_t size = body_.type(old).shape[1].constant();
    ValueId px = from_x(x);
    const bool after = variant_.reset_after;
    ValueId ph = after ? from_h(h) : apply(map(of_h(), [&](ValueId v) { return rows(v, 0, 2); }), h);
    ValueId r = gate(body_.add(block(px, 0, size), block(ph, 0, size)));
    ValueId z = gate(body_.add(block(px, 1, size), block(ph, 1, size)));
    ValueId recurrent = after ? body_.mul(r, block(ph, 2, size))
                              : apply(map(of_h(), [&](ValueId v) { return rows(v, 2, 3); }), body_.mul(r, h));
    ValueId n = hidden(body_.add(block(px, 2, size), recurrent));
    return {clipped(body_.add(body_.mul(body_.sub(old, n), z), n))};
  }

  /// gates + p c, where there is a peephole.
  ValueId with_peephole(ValueId pre, ValueId peephole, ValueId c) {
    return peephole == ir::kNoValue ? pre : body_.add(pre, body_.mul(vector_like(peephole, c), c));
  }

  std::vector<ValueId> lstm(ValueId x, ValueId h, ValueId c) {
    const int64_t size = body_.type(c).shape[1].constant();
    ValueId gates = body_.add(from_x(x), from_h(h));
    int64_t next_block = 0;
    auto pre = [&] { return block(gates, next_block++, size); };
    auto rest = [&](ValueId of) { return body_.sub(constant(body_, 1, of), of); };
    ValueId i = ir::kNoValue, f = ir::kNoValue;
    if (variant_.coupling != Coupling::kForget) i = gate(with_peephole(pre(), more_.p_i, c));
    if (variant_.coupling != Coupling::kInput) f = gate(with_peephole(pre(), more_.p_f, c));
    if (i == ir::kNoValue) i = rest(f);
    if (f == ir::kNoValue) f = rest(i);
    ValueId u = hidden(pre());
    ValueId next = clipped(body_.add(body_.mul(f, c), body_.mul(i, u)));
    ValueId o = gate(with_peephole(pre(), more_.p_o, next));
    ValueId shown = next;
    if (more_.ln_c != ir::kNoValue) shown = normalised(next, more_.ln_c);
    if (more_.ln_c_bias != ir::kNoValue) shown = body_.add(shown, vector_like(more_.ln_c_bias, shown));
    ValueId out = body_.mul(o, hidden(shown));
    return {weights_.w_hr == ir::kNoValue ? out : body_.matmul(out, weights_.w_hr, true), next};
  }

  Builder& body_;
  Cell cell_;
  const CellVariant& variant_;
  const CellWeights& weights_;
  const VariantWeights& more_;
};

}  // namespace

std::vector<VariantWeights::Parameter> VariantWeights::list(Cell cell, const CellVariant& variant, int64_t hidden_size,
                                                            bool biases) {
  std::vector<Parameter> parameters;
  if (variant.peepholes) {
    if (variant.coupling != Coupling::kForget) parameters.push_back({"p_i", &VariantWeights::p_i, hidden_size});
    if (variant.coupling != Coupling::kInput) parameters.push_back({"p_f", &VariantWeights::p_f, hidden_size});
    parameters.push_back({"p_o", &VariantWeights::p_o, hidden_size});
  }
  if (variant.layer_norm) {
    int64_t rows = gates_of(cell) * hidden_size;
    parameters.push_back({"ln_ih", &VariantWeights::ln_ih, rows});
    parameters.push_back({"ln_hh", &VariantWeights::ln_hh, rows});
    if (cell == Cell::kLstm) {
      parameters.push_back({"ln_c", &VariantWeights::ln_c, hidden_size});
      if (biases) parameters.push_back({"ln_c_bias", &VariantWeights::ln_c_bias, hidden_size});
    }
  }
  return parameters;
}

std::vector<ValueId> variant_step(Builder& body, Cell cell, const CellVariant& variant, const CellWeights& weights,
                                  const VariantWeights& more, const StepMasks& masks, ValueId x,
                                  std::span<const ValueId> carry) {
  std::vector<ValueId> old(carry.begin(), carry.end());
  if (masks.restart != ir::kNoValue) {
    for (ValueId& state : old) {
      ValueId restart = body.broadcast(masks.restart, body.type(state).shape, {0});
      state = body.select(restart, constant(body, 0, state), state);
    }
  }
  ValueId h = masks.recurrent == ir::kNoValue ? old[0] : body.mul(old[0], masks.recurrent);
  std::vector<ValueId> next = VariantStep(body, cell, variant, weights, more)(x, h, old);
  for (size_t i = 0; i < next.size(); ++i) {
    if (variant.zoneout_mask[i]) {
      next[i] = body.select(masks.keep[i], old[i], next[i]);
    } else if (variant.zoneout[i] != 0) {
      ValueId difference = body.sub(old[i], next[i]);
      next[i] = body.add(next[i], body.mul(difference, constant(body, variant.zoneout[i], difference)));
    }
  }
  return next;
}

}  // namespace weft::override_kernels
