#include "override/rnn_program.h"

#include "ir/builder.h"

namespace weft::override_kernels {
namespace {

using ir::Builder;
using ir::Dim;
using ir::ValueId;
using Form = RnnConfig::Form;

class RnnBuilder {
 public:
  explicit RnnBuilder(const RnnConfig& config)
      : config_(config),
        compute_(config.dtypes.x == DType::kF64 ? DType::kF64 : DType::kF32),
        builder_(program_, program_.body) {
    program_.name = name_of(config.cell) + (config.form == Form::kStep ? "_cell" : "");
    if (!config.variant.is_plain()) program_.name += "_variant";
    if (config.bytes) program_.name += "_int8";
  }

  ir::Program build() {
    declare_inputs();
    if (config_.form == Form::kStep)
      one_step();
    else
      stack_of_layers();
    return std::move(program_);
  }

 private:
  struct Direction {
    CellWeights weights;
    std::vector<ValueId> init;  ///< a carry each, [B, size]
    VariantWeights more;
    StepMasks masks;  ///< of all steps
  };

  void declare_inputs() {
    const DType x = config_.dtypes.x;
    switch (config_.form) {
      case Form::kPadded:
        x_ = input(x, {steps_, batch_, config_.input_size}, "x");
        break;
      case Form::kPacked:
        x_ = input(x, {rows_, config_.input_size}, "x");
        batch_sizes_ = input(DType::kI64, {steps_}, "batch_sizes");
        break;
      case Form::kStep:
        x_ = input(x, {batch_, config_.input_size}, "x");
        break;
    }
    std::vector<ValueId> states;
    for (size_t i = 0; i < carries_of(config_.cell); ++i) {
      ir::Shape shape{batch_, size_of_carry(i)};
      if (config_.form != Form::kStep) shape.insert(shape.begin(), config_.layers * config_.directions());
      states.push_back(input(dtype_of_state(i), shape, std::string(i == 0 ? "h" : "c") + "0"));
    }
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      for (int64_t d = 0; d < config_.directions(); ++d) {
        Direction& direction = directions_.emplace_back();
        direction.weights = weight_inputs(layer, d);
        direction.more = variant_inputs(layer, d);
      }
    }
    for (Direction& direction : directions_) direction.masks = mask_inputs();
    for (size_t i = 0; i < directions_.size(); ++i) {
      for (ValueId all : states) {
        ValueId init = state_of(all, static_cast<int64_t>(i));
        directions_[i].init.push_back(builder_.cast(init, compute_));
      }
      prepare(directions_[i]);
    }
  }

  void one_step() {
    auto next = cell_step(builder_, config_.cell, directions_[0].weights, operand(x_), directions_[0].init,
                          directions_[0].init[0]);
    std::vector<ValueId> returned;
    for (size_t i = 0; i < next.size(); ++i) returned.push_back(builder_.cast(next[i], dtype_of_last(i)));
    builder_.ret(std::move(returned));
  }

  void stack_of_layers() {
    ValueId sequence = x_;
    std::vector<std::vector<ValueId>> last(carries_of(config_.cell));  // [carry][layer, direction], each [1,B,size]
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      std::vector<ValueId> outputs;
      sequence = operand(sequence);
      for (int64_t d = 0; d < config_.directions(); ++d) {
        auto results = scan(sequence, directions_[static_cast<size_t>(layer * config_.directions() + d)], d == 1);
        outputs.push_back(results.back());
        for (size_t i = 0; i < last.size(); ++i) {
          bool is_rounded = i == 0 && rounds_states() && dtype_of_last(0) == DType::kBF16;
          ValueId state = is_rounded ? results[last.size()] : builder_.cast(results[i], dtype_of_last(i));
          last[i].push_back(builder_.reshape(state, {1, batch_, size_of_carry(i)}));
        }
      }
      sequence = outputs.size() == 1 ? outputs[0] : builder_.concat(outputs, builder_.type(outputs[0]).rank() - 1);
    }
    std::vector<ValueId> returned{sequence};
    for (auto& states : last) returned.push_back(states.size() == 1 ? states[0] : builder_.concat(states, 0));
    builder_.ret(std::move(returned));
  }

  /// Whether weights are bf16 in products. Then states are rounded to bf16 for products, and so are results, as in
  /// PyTorch: a product of bf16 with bf16, forward or backward, takes half the time. All other uses of h in a step read
  /// it unrounded.
  bool rounds_states() const {
    return config_.variant.is_plain() && config_.dtypes.rounding.value_or(config_.dtypes.weights) == DType::kBF16;
  }

  /// The last carries (with rounds_states() the last h is rounded), then the outputs of all steps.
  std::vector<ValueId> scan(ValueId sequence, const Direction& direction, bool reverse) {
    const StepMasks& masks = direction.masks;
    std::vector<ValueId> sequences{sequence};
    for (ValueId of_all : {masks.restart, masks.keep[0], masks.keep[1]}) {
      if (of_all != ir::kNoValue) sequences.push_back(of_all);
    }
    auto step = [&](Builder& body, std::span<const ValueId> carry, std::span<const ValueId> xs) {
      size_t own = direction.init.size();
      ValueId state = rounds_states() ? body.cast(carry[own], compute_) : carry[0];
      auto next = this->step(body, direction, carry.first(own), state, xs);
      ValueId y = body.cast(next[0], config_.dtypes.y);
      if (rounds_states()) next.push_back(body.cast(next[0], DType::kBF16));
      return Builder::StepResults{next, {y}};
    };
    // h is rounded at the end of the step that computes it. At the beginning of the next step all threads would wait
    // for it.
    std::vector<ValueId> init = direction.init;
    if (rounds_states()) init.push_back(builder_.cast(init[0], DType::kBF16));
    std::optional<ir::Ragged> ragged;
    if (config_.form == Form::kPacked) ragged = {batch_sizes_, batch_, rows_};
    return builder_.scan(std::move(init), sequences, steps_, ragged, reverse, step);
  }

  std::vector<ValueId> step(Builder& body, const Direction& direction, std::span<const ValueId> carry, ValueId state,
                            std::span<const ValueId> xs) {
    if (config_.variant.is_plain()) {
      std::optional<DType> products;
      if (rounds_states()) products = DType::kBF16;
      return cell_step(body, config_.cell, direction.weights, xs[0], carry, state, products);
    }
    StepMasks masks = direction.masks;
    size_t next = 1;
    for (ValueId* of_step : {&masks.restart, &masks.keep[0], &masks.keep[1]}) {
      if (*of_step != ir::kNoValue) *of_step = xs[next++];
    }
    return variant_step(body, config_.cell, config_.variant, direction.weights, direction.more, masks, xs[0], carry);
  }

  ValueId input(DType dtype, ir::Shape shape, std::string name) {
    return builder_.input({dtype, std::move(shape)}, std::move(name));
  }

  CellWeights weight_inputs(int64_t layer, int64_t direction) {
    std::string suffix = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
    if (config_.form == Form::kStep) suffix.clear();
    int64_t rows = gates_of(config_.cell) * config_.hidden_size;
    auto weight = [&](ir::Shape shape, const char* name) {
      return input(config_.dtypes.weights, std::move(shape), name + suffix);
    };
    CellWeights weights;
    auto matrix = [&](ValueId& place, ValueId& scale, ir::Shape shape, const std::string& name) {
      const Dim count = shape[0];
      place = input(config_.bytes ? DType::kI8 : config_.dtypes.weights, std::move(shape), name + suffix);
      if (config_.bytes) scale = input(config_.dtypes.weights, {count}, "scale_of_" + name + suffix);
    };
    matrix(weights.w_ih, weights.s_ih, {rows, config_.layer_input_size(layer)}, "w_ih");
    matrix(weights.w_hh, weights.s_hh, {rows, config_.output_size()}, "w_hh");
    if (config_.biases) {
      weights.b_ih = weight({rows}, "b_ih");
      weights.b_hh = weight({rows}, "b_hh");
    }
    if (config_.proj_size > 0) matrix(weights.w_hr, weights.s_hr, {config_.proj_size, config_.hidden_size}, "w_hr");
    return weights;
  }

  VariantWeights variant_inputs(int64_t layer, int64_t direction) {
    VariantWeights more;
    std::string suffix = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
    for (const auto& [name, member, size] : parameters_of_variant()) {
      more.*member = input(config_.dtypes.weights, {size}, name + suffix);
    }
    return more;
  }

  std::vector<VariantWeights::Parameter> parameters_of_variant() const {
    return VariantWeights::list(config_.cell, config_.variant, config_.hidden_size, config_.biases);
  }

  StepMasks mask_inputs() {
    StepMasks masks;
    const CellVariant& variant = config_.variant;
    if (variant.restarts) masks.restart = input(DType::kBool, {steps_, batch_}, "restart");
    if (variant.recurrent_mask) masks.recurrent = input(compute_, {batch_, size_of_carry(0)}, "recurrent_mask");
    for (size_t i = 0; i < carries_of(config_.cell); ++i) {
      if (!variant.zoneout_mask[i]) continue;
      ir::Shape shape{steps_, batch_, size_of_carry(i)};
      if (config_.form == Form::kPacked) shape = {rows_, size_of_carry(i)};
      masks.keep[i] = input(DType::kBool, shape, i == 0 ? "keep_h" : "keep_c");
    }
    return masks;
  }

  void prepare(Direction& direction) {
    CellWeights& weights = direction.weights;
    for (ValueId* weight : {&weights.w_ih, &weights.w_hh, &weights.b_ih, &weights.b_hh, &weights.w_hr}) {
      if (*weight != ir::kNoValue) *weight = operand(*weight);
    }
    for (const auto& parameter : parameters_of_variant()) {
      direction.more.*parameter.member = operand(direction.more.*parameter.member);
    }
  }

  /// An operand of a product: rounded to autocast's type, then cast to the type in which the program computes.
  ValueId operand(ValueId value) {
    if (config_.dtypes.rounding) value = builder_.cast(value, *config_.dtypes.rounding);
    return builder_.cast(value, compute_);
  }

  /// [B, size] of one layer and direction from [L*D, B, size].
  ValueId state_of(ValueId all, int64_t index) {
    if (config_.form == Form::kStep) return all;
    ir::Shape shape = builder_.type(all).shape;
    if (directions_.size() > 1) all = builder_.slice(all, 0, index, index + 1);
    return builder_.reshape(all, {shape[1], shape[2]});
  }

  int64_t size_of_carry(size_t carry) const { return carry == 0 ? config_.output_size() : config_.hidden_size; }
  DType dtype_of_state(size_t carry) const { return carry == 0 ? config_.dtypes.h : config_.dtypes.c; }
  DType dtype_of_last(size_t carry) const { return carry == 0 ? config_.dtypes.last_h : config_.dtypes.last_c; }

  const RnnConfig& config_;
  const DType compute_;
  const Dim steps_ = Dim::symbol("T"), batch_ = Dim::symbol("B"), rows_ = Dim::symbol("N");
  ir::Program program_;
  Builder builder_;
  ValueId x_ = ir::kNoValue, batch_sizes_ = ir::kNoValue;
  std::vector<Direction> directions_;  ///< by layer, then by direction
};

}  // namespace

ir::Program rnn_program(const RnnConfig& config) { return RnnBuilder(config).build(); }

}  // namespace weft::override_kernels
