#include "override/run.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>

#include <map>
#include <mutex>

#include "operator/borrowed_tensors.h"
#include "operator/call.h"
#include "operator/program_table.h"
#include "override/state.h"

namespace weft::override_kernels {

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Form = RnnConfig::Form;

/// Never destroyed: calls may come while the process ends. Guarded by lookup_mutex().
auto& rnn_programs = *new std::map<RnnConfig, std::weak_ptr<const torch_operator::CallProgram>>;

/// True once the thread's last program is destroyed. A thread may still call while it ends.
thread_local bool last_is_gone = false;

/// The program that this thread asked for last.
struct LastProgram {
  RnnConfig config;
  torch_operator::ProgramRef program;
  ~LastProgram() { last_is_gone = true; }
};
thread_local LastProgram last;

/// The configuration's program, written at its first use.
torch_operator::ProgramRef program_for(const RnnConfig& config) {
  if (!last_is_gone && last.program && last.config == config) return last.program;
  torch_operator::ProgramRef program;
  {
    std::lock_guard lock(torch_operator::lookup_mutex());
    if (auto found = rnn_programs.find(config); found != rnn_programs.end()) program = found->second.lock();
  }
  if (!program) {
    program = torch_operator::intern(rnn_program(config));
    std::lock_guard lock(torch_operator::lookup_mutex());
    std::erase_if(rnn_programs, [](const auto& entry) { return entry.second.expired(); });
    rnn_programs.insert_or_assign(config, program);
  }
  if (!last_is_gone) {
    last.config = config;
    last.program = program;
  }
  return program;
}

/// Runs the configuration as one program.
Tensors run_program(const RnnConfig& config, const LayerInputs& given, const AppendMasks& masks) {
  Tensors more;
  torch_operator::BorrowedTensors inputs;
  inputs.append(given.sequence);
  if (config.form == Form::kPacked) inputs.append(*given.batch_sizes);
  inputs.append(given.states);
  inputs.append(given.params);
  if (masks) {
    for (int64_t i = 0; i < config.layers * config.directions(); ++i) masks(more, i % config.directions());
    inputs.append(more);
  }
  return torch_operator::call(program_for(config), inputs);
}

Tensors run(RnnConfig config, const RnnCall& call) {
  Tensor other;  // a dense copy, if needed
  const Tensor* input = &call.input;
  // The input is made dense here, not in the kernel, so that the backward finds the dense tensor saved.
  if (call.batch_first) input = &(other = input->transpose(0, 1).contiguous());
  const bool dense_rows = config.form == Form::kPacked && is_uniform(call);
  if (dense_rows) {
    config.form = Form::kPadded;
    input = &(other = input->reshape({call.batch_sizes->size(0), call.states[0].size(1), config.input_size}));
  }
  auto outputs =
      run_layers(config, {*input, call.batch_sizes, call.states, call.params, call.drops() ? call.dropout : 0});
  if (call.batch_first) outputs[0] = outputs[0].transpose(0, 1);
  if (dense_rows) outputs[0] = outputs[0].flatten(0, 1);
  return outputs;
}

}  // namespace

Tensors run_layers(const RnnConfig& config, const LayerInputs& given, const AppendMasks& masks) {
  if (given.dropout == 0) return run_program(config, given, masks);
  Tensor sequence = given.sequence;
  std::vector<Tensors> last(given.states.size());
  const int64_t directions = config.directions(), params = config.params_per_direction() * directions;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (layer > 0) sequence = at::dropout(sequence, given.dropout, true);
    RnnConfig one = config;
    one.layers = 1;
    one.input_size = config.layer_input_size(layer);
    if (layer > 0) one.dtypes.x = config.dtypes.y;
    Tensors states;
    for (const Tensor& state : given.states) states.push_back(state.narrow(0, layer * directions, directions));
    auto own = given.params.slice(static_cast<size_t>(layer * params), static_cast<size_t>(params));
    auto outputs = run_program(one, {sequence, given.batch_sizes, states, own}, masks);
    sequence = outputs[0];
    for (size_t i = 0; i < last.size(); ++i) last[i].push_back(outputs[i + 1]);
  }
  Tensors results{sequence};
  for (const Tensors& states : last) results.push_back(at::cat(states, 0));
  return results;
}

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
