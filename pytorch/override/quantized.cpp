// The operator weft::_rnn_quantized, with 8-bit weights, for the layers and cells of python/weft/nn/_quantized.py. It
// is a composite that calls weft::call, so tracing sees that call.

#include "override/quantized.h"

#include "base/error.h"
#include "operator/signature.h"
#include "override/run.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using at::TensorList;

/// Raises an error for what a module with 8-bit weights can't take.
void check_use(const Tensor& input, TensorList states, TensorList params) {
  auto needs_gradient = [](const Tensor& tensor) { return tensor.requires_grad(); };
  TORCH_CHECK(
      !at::GradMode::is_enabled() || !(needs_gradient(input) || std::ranges::any_of(states, needs_gradient)),
      "weft.quantize: weights of 8 bits are for inference and have no gradients, but an input or a state requires one: "
      "call the module under torch.no_grad(), or train the module that it was made from");
  auto check_device = [](const Tensor& tensor) {
    TORCH_CHECK(tensor.is_cpu() || tensor.is_meta(),
                "weft.quantize: weights of 8 bits are for the CPU, but a tensor is on ", tensor.device(),
                ": move the module and its inputs with .to('cpu')");
  };
  check_device(input);
  std::ranges::for_each(states, check_device);
  std::ranges::for_each(params, check_device);
}

/// Reads sizes and dtypes from the parameters. weft::call checks all tensors against the resulting program.
void read_quantized_tensors(RnnConfig& config, const Tensor& input, TensorList states, TensorList params) {
  check(params.size() >= 4 && params[0].dim() == 2 && params[2].dim() == 2,
        "weft::_rnn_quantized: takes w_ih [G*H, I], its scales, w_hh [G*H, H] and its scales");
  config.input_size = params[0].sym_size(1).guard_int(__FILE__, __LINE__);
  config.hidden_size = params[0].sym_size(0).guard_int(__FILE__, __LINE__) / gates_of(config.cell);
  const int64_t output_size = params[2].sym_size(1).guard_int(__FILE__, __LINE__);
  if (output_size != config.hidden_size) config.proj_size = output_size;
  const int64_t wanted = config.params_per_direction() * config.layers * config.directions();
  check(static_cast<int64_t>(params.size()) == wanted, "weft::_rnn_quantized: takes {} parameters, not {}", wanted,
        params.size());
  auto dtype = torch_operator::dtype_of(input.scalar_type());
  check(dtype && is_floating(*dtype) && *dtype != DType::kF64,
        "weft.quantize: weights of 8 bits take inputs of float32, bfloat16 or float16, not {}",
        c10::toString(input.scalar_type()));
  config.dtypes = {*dtype, *dtype, *dtype, DType::kF32, *dtype, *dtype, *dtype, std::nullopt};
  const size_t carries = carries_of(config.cell);
  check(states.empty() || states.size() == carries, "weft.quantize: {} takes {}, but got {} of them",
        name_of(config.cell), carries == 1 ? "one state" : "two states, (h, c)", states.size());
}

/// The states' sizes: of a step [B,size], else [L*D,B,size].
std::vector<std::array<c10::SymInt, 3>> state_sizes(const RnnConfig& config, const c10::SymInt& batch) {
  std::vector<std::array<c10::SymInt, 3>> sizes{{config.layers * config.directions(), batch, config.output_size()}};
  if (carries_of(config.cell) > 1) {
    sizes.push_back(sizes[0]);
    sizes[1][2] = config.hidden_size;
  }
  return sizes;
}

/// The checks of nn.RNNBase for a batched sequence and its states, with its messages.
void check_sizes(const RnnConfig& config, const Tensor& input, TensorList states, const c10::SymInt& batch) {
  const bool one = carries_of(config.cell) == 1;
  if (std::ranges::any_of(states, [](const Tensor& state) { return state.dim() != 3; })) {
    TORCH_CHECK(!one, "For batched 3-D input, hx should also be 3-D but got ", states[0].dim(), "-D tensor");
    TORCH_CHECK(false, "For batched 3-D input, hx and cx should also be 3-D but got (", states[0].dim(), "-D, ",
                states[1].dim(), "-D) tensors");
  }
  TORCH_CHECK(input.sym_size(2).sym_eq(config.input_size).guard_bool(__FILE__, __LINE__),
              "input.size(-1) must be equal to input_size. Expected ", config.input_size, ", got ", input.sym_size(2));
  if (states.empty()) return;
  const auto sizes = state_sizes(config, batch);
  for (size_t i = 0; i < states.size(); ++i)
    for (int64_t dim = 0; dim < 3; ++dim)
      TORCH_CHECK(states[i].sym_size(dim).sym_eq(sizes[i][static_cast<size_t>(dim)]).guard_bool(__FILE__, __LINE__),
                  "Expected hidden", one ? "" : "[" + std::to_string(i) + "]", " size (", sizes[i][0], ", ",
                  sizes[i][1], ", ", sizes[i][2], "), got ", states[i].sym_sizes());
}

/// Zeros as the states of a call that gives none.
std::vector<Tensor> zeros(const RnnConfig& config, const Tensor& input, const c10::SymInt& batch) {
  std::vector<Tensor> states;
  const bool is_step = config.form == RnnConfig::Form::kStep;
  for (const auto& sizes : state_sizes(config, batch))
    states.push_back(at::zeros_symint(c10::SymIntArrayRef(sizes).slice(is_step ? 1 : 0), input.options()));
  return states;
}

std::vector<Tensor> rnn_quantized(const Tensor& input, const std::optional<Tensor>& batch_sizes, TensorList states,
                                  TensorList params, std::string_view cell, bool biases, int64_t layers,
                                  bool bidirectional, bool batch_first) {
  RnnConfig config;
  config.cell = cell_named("weft::_rnn_quantized", cell);
  config.bytes = true;
  if (batch_sizes)
    config.form = RnnConfig::Form::kPacked;
  else if (input.dim() == 2)
    config.form = RnnConfig::Form::kStep;
  config.biases = biases;
  config.bidirectional = bidirectional;
  config.layers = layers;
  check_use(input, states, params);
  read_quantized_tensors(config, input, states, params);
  const bool is_padded = config.form == RnnConfig::Form::kPadded;
  check(!is_padded || input.dim() == 3, "weft::_rnn_quantized: the input has 3 dims, packed or of a step 2");
  std::vector<Tensor> made;
  if (!batch_sizes) {
    const c10::SymInt batch = input.sym_size(is_padded && !batch_first ? 1 : 0);
    if (is_padded) check_sizes(config, input, states, batch);
    if (states.empty()) {
      made = zeros(config, input, batch);
      states = made;
    }
  }
  const bool swaps = batch_first && is_padded;
  const Tensor sequence = swaps ? input.transpose(0, 1).contiguous() : input;
  if (config.form != RnnConfig::Form::kStep)
    TORCH_CHECK(sequence.sym_size(0).sym_ne(0).guard_bool(__FILE__, __LINE__),
                "Expected sequence length to be larger than 0 in RNN");
  std::vector<Tensor> outputs =
      run_layers(config, {sequence, batch_sizes ? &*batch_sizes : nullptr, states, params, 0}, {});
  if (swaps) outputs[0] = outputs[0].transpose(0, 1);
  return outputs;
}

}  // namespace
}  // namespace weft::override_kernels

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "_rnn_quantized(Tensor input, Tensor? batch_sizes, Tensor[] states, Tensor[] params, str cell, bool biases, "
      "int num_layers, bool bidirectional, bool batch_first) -> Tensor[]",
      weft::override_kernels::rnn_quantized);
}

// For torch.vmap of a module: the composite unchanged, since the operators that it calls have batching rules.
TORCH_LIBRARY_IMPL(weft, FuncTorchBatched, m) {
  m.impl("_rnn_quantized", TORCH_FN(weft::override_kernels::rnn_quantized));
}

namespace weft::override_kernels {
namespace {

/// Looked up at load time (base/fork.h), right after its definition.
const auto& operator_handle = *new auto(
    c10::Dispatcher::singleton().findSchemaOrThrow("weft::_rnn_quantized", "").typed<decltype(rnn_quantized)>());

}  // namespace

std::vector<Tensor> call_quantized(const Tensor& input, const std::optional<Tensor>& batch_sizes,
                                   const std::vector<Tensor>& states, const std::vector<Tensor>& params,
                                   std::string_view cell, bool biases, int64_t layers, bool bidirectional,
                                   bool batch_first) {
  return operator_handle.call(input, batch_sizes, states, params, cell, biases, layers, bidirectional, batch_first);
}

}  // namespace weft::override_kernels
