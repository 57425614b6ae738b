// The operator weft::_rnn_quantized: the layers and cells that python/weft/nn/_quantized.py makes, with 8-bit weights.
// A composite that calls weft::call, so that whatever traces sees that.

#include <torch/library.h>

#include "base/error.h"
#include "operator/aten.h"
#include "operator/signature.h"
#include "override/run.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using at::TensorList;

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
        "weft.quantize: 8-bit weights take inputs of float32, bfloat16 or float16, not {}",
        c10::toString(input.scalar_type()));
  config.dtypes = {*dtype, *dtype, *dtype, DType::kF32, *dtype, *dtype, *dtype, std::nullopt};
  check(states.size() == carries_of(config.cell), "weft::_rnn_quantized: {} takes {} states, not {}",
        name_of(config.cell), carries_of(config.cell), states.size());
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
  read_quantized_tensors(config, input, states, params);
  const bool swaps = batch_first && config.form == RnnConfig::Form::kPadded;
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
