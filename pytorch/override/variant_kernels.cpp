// The operator weft::_rnn_variant: the layers of weft.nn's modules, for which PyTorch has no kernels. It is a composite
// that draws the masks and calls weft::call, so tracing and differentiation see these operations.

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "base/error.h"
#include "operator/aten.h"
#include "operator/autocast_state.h"
#include "operator/signature.h"
#include "override/run.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;

/// The tensors of a call with time as the first dim, and the probabilities of its masks.
struct VariantCall {
  Tensor input;      ///< [T,B,I], packed [N,I]
  Tensors states;    ///< h, lstm: and c: [L*D,B,size]
  Tensors restarts;  ///< one bool[T,B] for each direction; empty if the carry never restarts
  std::array<double, 2> zoneout{};
  double recurrent_dropout = 0;
};

/// A mask of a direction's whole run: true with probability p.
Tensor drawn(c10::SymIntArrayRef sizes, double p, at::ScalarType dtype) {
  return at::empty_symint(sizes, at::TensorOptions(dtype)).bernoulli_(p);
}

/// Appends a direction's inputs beside its parameters (masks, restarts), in the program's order.
void append_masks(Tensors& inputs, const RnnConfig& config, const VariantCall& call, int64_t direction) {
  const CellVariant& variant = config.variant;
  const c10::SymInt batch = call.states[0].sym_size(1);
  std::vector<c10::SymInt> all_steps = call.input.sym_sizes().vec();
  if (variant.restarts) inputs.push_back(call.restarts[static_cast<size_t>(direction)]);
  if (variant.recurrent_mask) {
    auto dtype = config.dtypes.x == DType::kF64 ? at::kDouble : at::kFloat;
    const double kept = 1 - call.recurrent_dropout;
    inputs.push_back(drawn({batch, config.output_size()}, kept, dtype).div(kept));
  }
  for (size_t i = 0; i < carries_of(config.cell); ++i) {
    const int64_t size = i == 0 ? config.output_size() : config.hidden_size;
    all_steps.back() = size;
    if (variant.zoneout_mask[i]) inputs.push_back(drawn(all_steps, call.zoneout[i], at::kBool));
  }
}

/// The steps at which each direction restarts. The backward direction enters an episode at its last step.
Tensors restarts_of(const Tensor& is_init, int64_t directions) {
  Tensors restarts{is_init.contiguous()};
  if (directions == 2) {
    Tensor none = at::zeros_symint({1, is_init.sym_size(1)}, is_init.options());
    restarts.push_back(at::cat({is_init.slice(0, 1), none}, 0));
  }
  return restarts;
}

CellVariant::Coupling coupling_named(std::string_view name) {
  if (name.empty()) return CellVariant::Coupling::kNone;
  if (name == "input") return CellVariant::Coupling::kInput;
  if (name == "forget") return CellVariant::Coupling::kForget;
  user_error("weft::_rnn_variant: coupled is '', 'input' or 'forget', not '{}'", name);
}

/// Reads sizes and dtypes from the parameters. weft::call checks all tensors against the resulting program.
void read_variant_tensors(RnnConfig& config, const Tensor& input, TensorList states, TensorList params) {
  const int64_t gates = gates_of(config.cell);
  check(states.size() == carries_of(config.cell), "weft::_rnn_variant: {} takes {} states, not {}",
        name_of(config.cell), carries_of(config.cell), states.size());
  check(params.size() >= 2 && params[0].dim() == 2 && params[1].dim() == 2,
        "weft::_rnn_variant: the weights w_ih and w_hh have 2 dims");
  check(input.dim() == (config.form == RnnConfig::Form::kPacked ? 2 : 3),
        "weft::_rnn_variant: the input has 3 dims, packed 2");
  config.input_size = params[0].sym_size(1).guard_int(__FILE__, __LINE__);
  config.hidden_size = params[0].sym_size(0).guard_int(__FILE__, __LINE__) / gates;
  const int64_t output_size = params[1].sym_size(1).guard_int(__FILE__, __LINE__);
  if (output_size != config.hidden_size) config.proj_size = output_size;
  const int64_t wanted = config.params_per_direction() * config.layers * config.directions();
  check(static_cast<int64_t>(params.size()) == wanted, "weft::_rnn_variant: takes {} parameters, not {}", wanted,
        params.size());
  auto dtype = torch_operator::dtype_of(params[0].scalar_type());
  check(dtype && is_floating(*dtype), "weft.nn: parameters must be of a floating dtype, but are {}",
        c10::toString(params[0].scalar_type()));
  config.dtypes = {*dtype, *dtype, *dtype, *dtype, *dtype, *dtype, *dtype, std::nullopt};
}

Tensors rnn_variant(const Tensor& input, const std::optional<Tensor>& batch_sizes, TensorList states, TensorList params,
                    const std::optional<Tensor>& is_init, std::string_view cell, bool biases, int64_t layers,
                    double dropout, bool train, bool bidirectional, bool batch_first, bool reset_after,
                    std::string_view gate_activation, std::string_view activation, double cell_clip, bool peepholes,
                    std::string_view coupled, bool layer_norm, double zoneout_h, double zoneout_c,
                    double recurrent_dropout) {
  RnnConfig config;
  config.cell = cell_named("weft::_rnn_variant", cell);
  if (batch_sizes) config.form = RnnConfig::Form::kPacked;
  config.biases = biases;
  config.bidirectional = bidirectional;
  config.layers = layers;
  CellVariant& variant = config.variant;
  variant.reset_after = reset_after;
  variant.coupling = coupling_named(coupled);
  variant.peepholes = peepholes;
  variant.layer_norm = layer_norm;
  variant.clip = cell_clip;
  if (gate_activation != "sigmoid") variant.gate_activation = gate_activation;
  if (activation != (config.cell == Cell::kRnnRelu ? "relu" : "tanh")) variant.activation = activation;
  if (train) {
    variant.zoneout_mask = {zoneout_h > 0, zoneout_c > 0};
    variant.recurrent_mask = recurrent_dropout > 0;
  } else {
    variant.zoneout = {zoneout_h, zoneout_c};
  }
  variant.restarts = is_init.has_value();
  check(!(is_init && batch_sizes), "weft::_rnn_variant: is_init is for padded sequences");
  read_variant_tensors(config, input, states, params);

  VariantCall call;
  call.zoneout = {zoneout_h, zoneout_c};
  call.recurrent_dropout = recurrent_dropout;
  call.input = batch_first && !batch_sizes ? input.transpose(0, 1).contiguous() : input;
  call.states = states.vec();
  if (at::autocast::is_autocast_enabled(input.is_privateuseone()
                                            ? at::kPrivateUse1
                                            : at::kCPU)) {  // results of other layers may be of the lower type
    call.input = call.input.to(params[0].scalar_type());
    for (Tensor& state : call.states) state = state.to(params[0].scalar_type());
  }
  TORCH_CHECK(call.input.sym_size(0).sym_ne(0).guard_bool(__FILE__, __LINE__),
              "Expected sequence length to be larger than 0 in RNN");
  if (is_init) call.restarts = restarts_of(*is_init, config.directions());
  const LayerInputs given{call.input, batch_sizes ? &*batch_sizes : nullptr, call.states, params,
                          train && layers > 1 ? dropout : 0};
  Tensors outputs = run_layers(
      config, given, [&](Tensors& inputs, int64_t direction) { append_masks(inputs, config, call, direction); });
  if (batch_first && !batch_sizes) outputs[0] = outputs[0].transpose(0, 1);
  return outputs;
}

}  // namespace
}  // namespace weft::override_kernels

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "_rnn_variant(Tensor input, Tensor? batch_sizes, Tensor[] states, Tensor[] params, Tensor? is_init, str cell, "
      "bool biases, "
      "int num_layers, float dropout, bool train, bool bidirectional, bool batch_first, bool reset_after, "
      "str gate_activation, str activation, float cell_clip, bool peepholes, str coupled, bool layer_norm, "
      "float zoneout_h, float zoneout_c, float recurrent_dropout) -> Tensor[]",
      weft::override_kernels::rnn_variant);
}

// For torch.vmap of a module: the composite unchanged, since the operators that it calls have batching rules.
TORCH_LIBRARY_IMPL(weft, FuncTorchBatched, m) { m.impl("_rnn_variant", TORCH_FN(weft::override_kernels::rnn_variant)); }
