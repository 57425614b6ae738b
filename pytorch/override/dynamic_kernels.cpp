// torch.ao's dynamically quantized modules on the engine: aten::quantized_gru and quantized_lstm on padded sequences
// and the operators of their cells. PyTorch has kernels of these operators for the CPU's key alone, and no function
// that a kernel in their place could call. So Weft's kernels stand at a key in front of it, BackendSelect, and pass on
// the calls that they don't cover.

#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <map>
#include <mutex>

#include "operator/call.h"
#include "operator/program_table.h"
#include "override/composite_checks.h"
#include "override/dynamic_program.h"
#include "override/dynamic_weights.h"
#include "override/state.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::jit::Stack;

/// Never destroyed. Guarded by torch_operator::lookup_mutex().
auto& dynamic_programs = *new std::map<DynamicConfig, std::weak_ptr<const torch_operator::CallProgram>>;

torch_operator::ProgramRef dynamic_program_for(const DynamicConfig& config) {
  {
    std::lock_guard lock(torch_operator::lookup_mutex());
    if (auto found = dynamic_programs.find(config); found != dynamic_programs.end())
      if (auto program = found->second.lock()) return program;
  }
  auto program = torch_operator::intern(dynamic_program(config));
  std::lock_guard lock(torch_operator::lookup_mutex());
  std::erase_if(dynamic_programs, [](const auto& entry) { return entry.second.expired(); });
  dynamic_programs.insert_or_assign(config, program);
  return program;
}

bool is_plain(const Tensor& tensor, int64_t dims) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
         tensor.dim() == dims &&
         !tensor.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::Functionalize}));
}

/// Appends a layer's inputs; false if Weft has no kernel for it.
bool append(const DynamicCell& cell, DynamicConfig& config, Tensors& inputs) {
  for (const auto* packed : {&cell.ih, &cell.hh}) {
    const auto linear = unpacked(*packed);
    if (!linear) return false;
    const int64_t most = cell.reduce_range && !linear->ignores_range ? 127 : 255;
    if (!config.hh_biases.empty() && most != config.most) return false;
    config.most = most;
    inputs.insert(inputs.end(), {linear->rows, linear->scales});
    const bool has_bias = linear->bias && linear->bias->defined();
    if (has_bias) inputs.push_back(linear->bias->detach());
    (packed == &cell.ih ? config.ih_biases : config.hh_biases).push_back(has_bias);
  }
  return true;
}

/// Whether the sizes are those of a module. If not, PyTorch raises the error.
bool fits_kernels(const DynamicConfig& config, const Tensor& input, const Tensors& states, const Tensors& inputs) {
  const int64_t dims = config.is_step ? 2 : 3, batch = input.size(dims - 2);
  if (input.size(-1) != config.input_size || input.numel() == 0) return false;
  size_t next = 0;
  for (int64_t i = 0; i < config.layers * config.directions(); ++i) {
    const auto at = static_cast<size_t>(i);
    for (const bool is_ih : {true, false}) {
      const int64_t columns = !is_ih                    ? config.hidden_size
                              : i < config.directions() ? config.input_size
                                                        : config.directions() * config.hidden_size;
      if (inputs[next].size(0) != gates_of(config.cell) * config.hidden_size || inputs[next].size(1) != columns)
        return false;
      next += (is_ih ? config.ih_biases : config.hh_biases)[at] ? 3 : 2;
    }
  }
  return std::ranges::all_of(states, [&](const Tensor& state) {
    return is_plain(state, dims) && state.size(dims - 2) == batch && state.size(dims - 1) == config.hidden_size &&
           (config.is_step || state.size(0) == config.layers * config.directions());
  });
}

/// The results; empty if PyTorch has to run the call.
Tensors run_dynamic(DynamicConfig config, const Tensor& input, const Tensors& states,
                    const std::vector<DynamicCell>& cells, const std::string& name) {
  const int64_t dims = config.is_step ? 2 : 3;
  if (!is_plain(input, dims) || states.size() != carries_of(config.cell)) return {};
  if (static_cast<int64_t>(cells.size()) != config.layers * config.directions()) return {};
  Tensors weights;
  for (const DynamicCell& cell : cells)
    if (!append(cell, config, weights)) {
      report_fallback(name, "weights that are not symmetric int8");
      return {};
    }
  config.input_size = weights[0].size(1);
  config.hidden_size = weights[0].size(0) / gates_of(config.cell);
  if (!fits_kernels(config, input, states, weights)) return {};
  Tensors inputs{input};
  inputs.insert(inputs.end(), states.begin(), states.end());
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  return torch_operator::call(dynamic_program_for(config), inputs);
}

Tensors state_list(const c10::IValue& states) {
  if (states.isTensor()) return {states.toTensor()};
  return states.toTensorVector();
}

/// aten::quantized_gru.input and quantized_lstm.input: (input, hx, params, has_biases, num_layers, dropout, train,
/// bidirectional, batch_first, ...).
Tensors run_layers_of(Cell cell, at::ArrayRef<c10::IValue> arguments) {
  DynamicConfig config{.cell = cell};
  config.layers = arguments[4].toInt();
  config.bidirectional = arguments[7].toBool();
  const std::string name = "quantized_" + name_of(cell);
  if (arguments[5].toDouble() > 0 && arguments[6].toBool() && config.layers > 1) return {};
  Tensor input = arguments[0].toTensor();
  if (!is_plain(input, 3)) return {};
  std::vector<DynamicCell> cells;
  for (const c10::IValue& params : arguments[2].toListRef()) {
    auto made = cell_of(params);
    if (!made) {
      report_fallback(name, "weights that are not int8");
      return {};
    }
    cells.push_back(*std::move(made));
  }
  const bool batch_first = arguments[8].toBool();
  if (batch_first) input = input.transpose(0, 1).contiguous();
  Tensors results = run_dynamic(std::move(config), input, state_list(arguments[1]), cells, name);
  if (batch_first && !results.empty()) results[0] = results[0].transpose(0, 1);
  return results;
}

/// quantized::quantized_*_cell_dynamic: (input, hx, w_ih, w_hh, b_ih, b_hh). PyTorch's kernels use a reduced range.
Tensors run_cell(Cell cell, at::ArrayRef<c10::IValue> arguments) {
  DynamicConfig config{.cell = cell, .is_step = true};
  auto linear = [&](size_t i) { return arguments[i].toCustomClass<LinearPackedParamsBase>(); };
  return run_dynamic(std::move(config), arguments[0].toTensor(), state_list(arguments[1]),
                     {{linear(2), linear(3), true}}, "quantized_" + name_of(cell) + "_cell");
}

using Runner = Tensors (*)(Cell, at::ArrayRef<c10::IValue>);

/// Checks a call before PyTorch's kernels run it.
void check_call(Cell cell, RnnConfig::Form form, at::ArrayRef<c10::IValue> arguments) {
  const Tensors states = state_list(arguments[1]);
  check_dims_and_states(cell, form, arguments[0].toTensor(), states);
}

/// A kernel for BackendSelect.
template <Cell cell, Runner runner, RnnConfig::Form form>
void kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const auto arguments = at::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count);
  Tensors results;
  if (active() && !c10::impl::TorchDispatchModeTLS::any_modes_set()) results = runner(cell, arguments);
  if (results.empty()) {
    check_call(cell, form, arguments);
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect),
                       stack);
    return;
  }
  torch::jit::drop(*stack, count);
  for (Tensor& result : results) stack->emplace_back(std::move(result));
}

template <Cell cell, Runner runner>
void implement(torch::Library& m, const char* name) {
  constexpr auto kForm = runner == run_cell ? RnnConfig::Form::kStep : RnnConfig::Form::kPadded;
  m.impl(name, torch::CppFunction::makeFromBoxedFunction<&kernel<cell, runner, kForm>>());
}

}  // namespace
}  // namespace weft::override_kernels

TORCH_LIBRARY_IMPL(aten, BackendSelect, m) {
  using namespace weft::override_kernels;
  implement<Cell::kGru, run_layers_of>(m, "quantized_gru.input");
  implement<Cell::kLstm, run_layers_of>(m, "quantized_lstm.input");
}
TORCH_LIBRARY_IMPL(quantized, BackendSelect, m) {
  using namespace weft::override_kernels;
  implement<Cell::kGru, run_cell>(m, "quantized_gru_cell_dynamic");
  implement<Cell::kLstm, run_cell>(m, "quantized_lstm_cell_dynamic");
  implement<Cell::kRnnTanh, run_cell>(m, "quantized_rnn_tanh_cell_dynamic");
  implement<Cell::kRnnRelu, run_cell>(m, "quantized_rnn_relu_cell_dynamic");
}
