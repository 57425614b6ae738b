#include "override/run.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>

#include <map>
#include <mutex>

#include "operator/call.h"
#include "operator/program_table.h"
#include "override/state.h"

namespace weft::override_kernels {

const torch_operator::CallProgram& program_for(const RnnConfig& config) {
  thread_local std::pair<RnnConfig, const torch_operator::CallProgram*> last{};
  if (last.second && last.first == config) return *last.second;
  static auto* programs = new std::map<RnnConfig, const torch_operator::CallProgram*>;
  const torch_operator::CallProgram* known = nullptr;
  {
    std::lock_guard lock(torch_operator::lookup_mutex());
    if (auto found = programs->find(config); found != programs->end()) known = found->second;
  }
  if (!known) {
    known = &torch_operator::intern(rnn_program(config));
    std::lock_guard lock(torch_operator::lookup_mutex());
    programs->emplace(config, known);
  }
  last = {config, known};
  return *known;
}

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Form = RnnConfig::Form;

/// One program; `input` with the time first.
Tensors run_program(const RnnConfig& config, const Tensor& input, const RnnCall& call) {
  Tensors inputs;
  inputs.reserve(2 + call.states.size() + call.params.size());
  inputs.push_back(input);
  if (config.form == Form::kPacked) inputs.push_back(*call.batch_sizes);
  inputs.insert(inputs.end(), call.states.begin(), call.states.end());
  inputs.insert(inputs.end(), call.params.begin(), call.params.end());
  return torch_operator::call(program_for(config).text(), inputs);
}

/// A program a layer, and PyTorch's dropout between them: it draws the masks that it would draw without Weft.
Tensors run_layers_apart(const RnnConfig& config, Tensor input, const RnnCall& call) {
  std::vector<Tensors> last(call.states.size());
  const int64_t directions = config.directions(), params = config.params_per_direction() * directions;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    RnnConfig one = config;
    one.layers = 1;
    one.input_size = config.layer_input_size(layer);
    if (layer > 0) one.dtypes.x = config.dtypes.y;
    Tensors states;
    for (const Tensor& state : call.states) states.push_back(state.narrow(0, layer * directions, directions));
    RnnCall part = call;
    part.states = states;
    part.params = call.params.slice(static_cast<size_t>(layer * params), static_cast<size_t>(params));
    auto outputs = run_program(one, input, part);
    input = layer + 1 < config.layers ? at::dropout(outputs[0], call.dropout, true) : outputs[0];
    for (size_t i = 0; i < last.size(); ++i) last[i].push_back(outputs[i + 1]);
  }
  Tensors results{input};
  for (const Tensors& states : last) results.push_back(at::cat(states, 0));
  return results;
}

Tensors run(RnnConfig config, const RnnCall& call) {
  Tensor input = call.input;
  // Made dense here, not in the kernel, so that the backward finds the dense one saved.
  if (call.batch_first) input = input.transpose(0, 1).contiguous();
  const bool dense_rows = config.form == Form::kPacked && is_uniform(call);
  if (dense_rows) {
    config.form = Form::kPadded;
    input = input.reshape({call.batch_sizes->size(0), call.states[0].size(1), config.input_size});
  }
  auto outputs = call.drops() ? run_layers_apart(config, input, call) : run_program(config, input, call);
  if (call.batch_first) outputs[0] = outputs[0].transpose(0, 1);
  if (dense_rows) outputs[0] = outputs[0].flatten(0, 1);
  return outputs;
}

}  // namespace

std::vector<Tensor> try_run(const RnnCall& call) {
  if (!active()) return {};
  if (auto reason = unsupported(call); !reason.empty()) {
    report_fallback(name_of(call.cell) + (call.form == Form::kStep ? "_cell" : ""), reason);
    return {};
  }
  auto config = configuration(call);
  if (!config) return {};
  return run(*std::move(config), call);
}

}  // namespace weft::override_kernels
