#include "override/dynamic_program.h"

#include <limits>

namespace weft::override_kernels {
namespace {

using ir::Builder;
using ir::Dim;
using ir::OpCode;
using ir::Shape;
using ir::ValueId;

/// Numbers in 8 bits: x is about scale * (rounded(x) - zero).
struct Quantisation {
  ValueId scale, inverse, zero;  ///< f32[]
};

/// One affine map: weights i8, their scales, and the bias.
struct Affine {
  ValueId weight, scale, bias;
};

class DynamicRounding {
 public:
  DynamicRounding(Builder& body, int64_t most) : b_(body), most_(static_cast<double>(most)) {}

  /// v W^T + b, v rounded as PyTorch's linear_dynamic does: by the scale of all of v.
  ValueId affine(ValueId v, const Affine& map) {
    const Quantisation rounding = rounding_of(v);
    const Shape shape = b_.type(v).shape;
    auto spread = [&](ValueId scalar) { return b_.broadcast(scalar, shape, {}); };
    const ValueId zero = spread(rounding.zero);
    ValueId q = b_.add(b_.unary(OpCode::kRound, b_.mul(v, spread(rounding.inverse))), zero);
    q = b_.binary(OpCode::kMinimum, b_.binary(OpCode::kMaximum, q, spread(f32(0))), spread(f32(255)));
    const ValueId whole = b_.cast(b_.sub(q, zero), DType::kI32);
    const ValueId product = b_.cast(b_.matmul(whole, b_.cast(map.weight, DType::kI32), true), DType::kF32);
    const Shape result = b_.type(product).shape;
    const Shape row{result.back()};
    const ValueId scale = b_.mul(map.scale, b_.broadcast(rounding.scale, row, {}));
    const ValueId scaled = b_.mul(product, b_.broadcast_trailing(scale, result));
    return map.bias == ir::kNoValue ? scaled : b_.add(scaled, b_.broadcast_trailing(map.bias, result));
  }

 private:
  ValueId f32(double value) { return b_.constant(value, {DType::kF32, {}}); }
  ValueId f64(double value) { return b_.constant(value, {DType::kF64, {}}); }

  /// The largest element, or 0 if that is larger, as f64[].
  ValueId largest(ValueId v) {
    for (int64_t rank = b_.type(v).rank(); rank > 0; --rank)
      v = b_.emit(OpCode::kReduceMax, {v}, {{"dims", std::vector<int64_t>{rank - 1}}});
    return b_.cast(b_.binary(OpCode::kMaximum, v, f32(0)), DType::kF64);
  }

  /// ChooseQuantizationParams of ATen/native/quantized/cpu/QuantUtils.h, in f64 as there.
  Quantisation rounding_of(ValueId v) {
    constexpr double kSmallScale = 6.1e-5F;
    ValueId high = largest(v), low = b_.neg(largest(b_.neg(v)));
    const ValueId most = f64(most_), one = f64(1);
    ValueId scale = b_.div(b_.sub(high, low), most);
    const ValueId reciprocal = b_.div(f32(1), b_.cast(scale, DType::kF32));
    const ValueId too_small = b_.binary(OpCode::kEq, reciprocal, f32(std::numeric_limits<double>::infinity()));
    scale = b_.select(too_small, f64(0.1), scale);
    const ValueId larger = b_.binary(OpCode::kMaximum, one, b_.div(f64(kSmallScale), scale));
    scale = b_.binary(OpCode::kMaximum, scale, f64(kSmallScale));
    low = b_.div(b_.mul(low, larger), scale);
    high = b_.div(b_.mul(high, larger), scale);
    // The zero comes from the end of the range that is nearer to it: a sum of smaller terms rounds less.
    const ValueId is_low = b_.binary(OpCode::kLt, low, b_.sub(most, high));
    ValueId zero = b_.select(is_low, b_.neg(low), b_.sub(most, high));
    zero = b_.binary(OpCode::kMinimum, b_.binary(OpCode::kMaximum, zero, f64(0)), most);
    zero = b_.cast(b_.unary(OpCode::kRound, zero), DType::kF32);
    const ValueId rounded_scale = b_.cast(scale, DType::kF32);
    return {rounded_scale, b_.div(f32(1), rounded_scale), zero};
  }

  Builder& b_;
  double most_;
};

class DynamicBuilder {
 public:
  explicit DynamicBuilder(const DynamicConfig& config) : config_(config), builder_(program_, program_.body) {
    program_.name = name_of(config.cell) + (config.is_step ? "_cell" : "") + "_dynamic_int8";
  }

  ir::Program build() {
    Shape shape{batch_, config_.input_size};
    if (!config_.is_step) shape.insert(shape.begin(), steps_);
    const ValueId x = input(DType::kF32, std::move(shape), "x");
    for (size_t i = 0; i < carries_of(config_.cell); ++i) {
      Shape state{batch_, config_.hidden_size};
      if (!config_.is_step) state.insert(state.begin(), config_.layers * config_.directions());
      states_.push_back(input(DType::kF32, std::move(state), i == 0 ? "h0" : "c0"));
    }
    for (int64_t i = 0; i < config_.layers * config_.directions(); ++i) maps_.push_back(map_inputs(i));
    config_.is_step ? one_step(x) : layers(x);
    return std::move(program_);
  }

 private:
  struct Maps {
    Affine ih, hh;
  };

  ValueId input(DType dtype, Shape shape, const std::string& name) {
    return builder_.input({dtype, std::move(shape)}, name);
  }

  Maps map_inputs(int64_t index) {
    const std::string suffix = "_" + std::to_string(index);
    const int64_t rows = gates_of(config_.cell) * config_.hidden_size;
    const bool is_first = index < config_.directions();
    auto map = [&](int64_t columns, bool has_bias, const std::string& name) {
      Affine made{input(DType::kI8, {rows, columns}, "w_" + name), input(DType::kF32, {rows}, "scale_" + name),
                  ir::kNoValue};
      if (has_bias) made.bias = input(DType::kF32, {rows}, "b_" + name);
      return made;
    };
    const auto at = static_cast<size_t>(index);
    const int64_t columns = is_first ? config_.input_size : config_.directions() * config_.hidden_size;
    const Affine ih = map(columns, config_.ih_biases[at], "ih" + suffix);
    return {ih, map(config_.hidden_size, config_.hh_biases[at], "hh" + suffix)};
  }

  std::vector<ValueId> step(Builder& body, const Maps& maps, ValueId from_x, std::span<const ValueId> carry) {
    const ValueId from_h = DynamicRounding(body, config_.most).affine(carry[0], maps.hh);
    return cell_from_products(body, config_.cell, from_x, from_h, carry, {});
  }

  void one_step(ValueId x) {
    const ValueId from_x = DynamicRounding(builder_, config_.most).affine(x, maps_[0].ih);
    builder_.ret(step(builder_, maps_[0], from_x, states_));
  }

  void layers(ValueId sequence) {
    const Shape state{batch_, config_.hidden_size};
    std::vector<std::vector<ValueId>> last(states_.size());
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      std::vector<ValueId> outputs;
      for (int64_t d = 0; d < config_.directions(); ++d) {
        const int64_t index = layer * config_.directions() + d;
        const Maps& maps = maps_[static_cast<size_t>(index)];
        std::vector<ValueId> init;
        for (ValueId all : states_) init.push_back(builder_.reshape(builder_.slice(all, 0, index, index + 1), state));
        const ValueId from_x = DynamicRounding(builder_, config_.most).affine(sequence, maps.ih);
        auto results = builder_.scan(init, {from_x}, steps_, d == 1,
                                     [&](Builder& body, std::span<const ValueId> carry, std::span<const ValueId> xs) {
                                       auto next = step(body, maps, xs[0], carry);
                                       return Builder::StepResults{next, {next[0]}};
                                     });
        outputs.push_back(results.back());
        for (size_t i = 0; i < last.size(); ++i)
          last[i].push_back(builder_.reshape(results[i], {1, batch_, config_.hidden_size}));
      }
      sequence = outputs.size() == 1 ? outputs[0] : builder_.concat(outputs, 2);
    }
    std::vector<ValueId> returned{sequence};
    for (auto& states : last) returned.push_back(states.size() == 1 ? states[0] : builder_.concat(states, 0));
    builder_.ret(std::move(returned));
  }

  const DynamicConfig& config_;
  const Dim steps_ = Dim::symbol("T"), batch_ = Dim::symbol("B");
  ir::Program program_;
  Builder builder_;
  std::vector<ValueId> states_;
  std::vector<Maps> maps_;  ///< by layer, then by direction
};

}  // namespace

ir::Program dynamic_program(const DynamicConfig& config) { return DynamicBuilder(config).build(); }

}  // namespace weft::override_kernels
