// Kernels of aten::gru, lstm, rnn_tanh and rnn_relu (the forms that take a padded tensor) on CPU and AutogradCPU. They
// read sizes only as SymInts, so that a trace stays dynamic in T and B, and call weft::call with the configuration's
// program. What they don't cover runs on PyTorch's composite; calls that PyTorch refuses go there too, for its words.

#include <ATen/autocast_mode.h>
#include <ATen/ops/gru_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_relu_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rnn_tanh_compositeimplicitautograd_dispatch.h>
#include <torch/csrc/python_headers.h>

#include <map>
#include <optional>

#include "operator/call.h"
#include "operator/program_table.h"
#include "override/rnn_program.h"
#include "override/state.h"

namespace weft::override_kernels {
namespace {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;

/// The arguments after the tensors, as aten::gru and its kin have them.
struct Options {
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;
};

/// What to do with a call: a program, or the composite, for a reason to count or, without one, for PyTorch's own words.
struct Decision {
  const torch_operator::CallProgram* program = nullptr;
  std::string reason;
};

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

/// Whether a tensor's Python class handles operators itself and is none of PyTorch's tracing classes, which let any
/// operator through.
bool of_unknown_subclass(const Tensor& tensor) {
  if (!tensor.key_set().has(c10::DispatchKey::Python)) return false;
  PyObject* object = tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
  if (!object) return true;
  std::string_view name = Py_TYPE(object)->tp_name;
  return name != "FakeTensor" && name != "FunctionalTensor";
}

/// Why Weft has no kernel for a call; empty when it has.
std::string unsupported(const Tensor& input, TensorList states, TensorList params, const Options& options) {
  if (options.bidirectional) return "bidirectional";
  if (options.train && options.dropout != 0 && options.layers > 1) return "dropout between layers in training";
  if (input.scalar_type() != at::kFloat && input.scalar_type() != at::kDouble) {
    return std::string("dtype ") + c10::toString(input.scalar_type());
  }
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast";
  if (states.size() == 2 && states[0].dim() == 3 && states[1].dim() == 3 &&
      states[0].sym_size(2).sym_ne(states[1].sym_size(2)).guard_bool(__FILE__, __LINE__)) {
    return "proj_size";
  }
  std::string reason;
  auto look_at = [&](const Tensor& tensor) {
    if (of_unknown_subclass(tensor)) reason = "a tensor subclass";
    if (tensor._fw_grad(0).defined()) reason = "forward-mode differentiation";
  };
  look_at(input);
  std::ranges::for_each(states, look_at);
  std::ranges::for_each(params, look_at);
  return reason;
}

bool equal(const c10::SymInt& a, const c10::SymInt& b) { return a.sym_eq(b).guard_bool(__FILE__, __LINE__); }

/// A dense CPU tensor of that dtype and those sizes?
bool fits(const Tensor& tensor, at::ScalarType dtype, std::initializer_list<c10::SymInt> sizes) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.scalar_type() != dtype || tensor.layout() != at::kStrided)
    return false;
  auto own = tensor.sym_sizes();
  return own.size() == sizes.size() && std::equal(own.begin(), own.end(), sizes.begin(), equal);
}

/// The configuration of a well-formed call; empty if anything doesn't fit, T = 0 included, which PyTorch refuses.
std::optional<RnnConfig> configuration(Cell cell, const Tensor& input, TensorList states, TensorList params,
                                       const Options& options) {
  int64_t per_layer = options.has_biases ? 4 : 2;
  if (options.layers < 1 || static_cast<int64_t>(params.size()) != per_layer * options.layers) return std::nullopt;
  if (input.dim() != 3 || params[0].dim() != 2 || params[1].dim() != 2) return std::nullopt;
  RnnConfig config{cell,
                   *torch_operator::dtype_of(input.scalar_type()),
                   options.has_biases,
                   options.layers,
                   params[0].sym_size(1).guard_int(__FILE__, __LINE__),
                   params[1].sym_size(1).guard_int(__FILE__, __LINE__)};
  c10::SymInt steps = input.sym_size(options.batch_first ? 1 : 0), batch = input.sym_size(options.batch_first ? 0 : 1);
  if (TORCH_GUARD_OR_FALSE(steps.sym_eq(0)) || config.hidden_size < 1) return std::nullopt;

  at::ScalarType dtype = input.scalar_type();
  if (!fits(input, dtype, {input.sym_size(0), input.sym_size(1), config.input_size})) return std::nullopt;
  for (const Tensor& state : states) {
    if (!fits(state, dtype, {config.layers, batch, config.hidden_size})) return std::nullopt;
  }
  int64_t rows = gates_of(cell) * config.hidden_size;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    auto weights = params.slice(layer * per_layer, per_layer);
    bool good = fits(weights[0], dtype, {rows, layer == 0 ? config.input_size : config.hidden_size}) &&
                fits(weights[1], dtype, {rows, config.hidden_size});
    if (options.has_biases) good = good && fits(weights[2], dtype, {rows}) && fits(weights[3], dtype, {rows});
    if (!good) return std::nullopt;
  }
  return config;
}

Decision decide(Cell cell, const Tensor& input, TensorList states, TensorList params, const Options& options) {
  if (!active()) return {};
  if (auto reason = unsupported(input, states, params, options); !reason.empty()) return {nullptr, reason};
  auto config = configuration(cell, input, states, params, options);
  return config ? Decision{&program_for(*config), ""} : Decision{};
}

/// y, hn and, for an LSTM, cn.
Tensors run(const torch_operator::CallProgram& program, const Tensor& input, TensorList states, TensorList params,
            bool batch_first) {
  Tensors inputs;
  inputs.reserve(1 + states.size() + params.size());
  // Made dense here, not in the kernel, so that the backward finds the dense one saved.
  inputs.push_back(batch_first ? input.transpose(0, 1).contiguous() : input);
  inputs.insert(inputs.end(), states.begin(), states.end());
  inputs.insert(inputs.end(), params.begin(), params.end());
  auto outputs = torch_operator::call(program.text(), inputs);
  if (batch_first) outputs[0] = outputs[0].transpose(0, 1);
  return outputs;
}

/// The program's outputs, or empty if the composite is to run.
Tensors try_run(Cell cell, const Tensor& input, TensorList states, TensorList params, const Options& options) {
  Decision decision = decide(cell, input, states, params, options);
  if (decision.program) return run(*decision.program, input, states, params, options.batch_first);
  if (!decision.reason.empty()) report_fallback(name_of(cell), decision.reason);
  return {};
}

using OneState = std::tuple<Tensor, Tensor>;

template <Cell cell, auto composite>
OneState one_state(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases, int64_t layers,
                   double dropout, bool train, bool bidirectional, bool batch_first) {
  auto out = try_run(cell, input, hx, params, {has_biases, layers, dropout, train, bidirectional, batch_first});
  if (!out.empty()) return {std::move(out[0]), std::move(out[1])};
  return composite(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases,
                                        int64_t layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  Tensors out;
  if (hx.size() == 2) {
    out = try_run(Cell::kLstm, input, hx, params, {has_biases, layers, dropout, train, bidirectional, batch_first});
  }
  if (!out.empty()) return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
  return at::compositeimplicitautograd::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional,
                                             batch_first);
}

using OneStateComposite = OneState (*)(const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool,
                                       bool);
constexpr OneStateComposite kGruComposite = at::compositeimplicitautograd::gru;
constexpr OneStateComposite kRnnTanhComposite = at::compositeimplicitautograd::rnn_tanh;
constexpr OneStateComposite kRnnReluComposite = at::compositeimplicitautograd::rnn_relu;

void register_kernels(torch::Library& m) {
  m.impl("gru.input", TORCH_FN((one_state<Cell::kGru, kGruComposite>)));
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("rnn_tanh.input", TORCH_FN((one_state<Cell::kRnnTanh, kRnnTanhComposite>)));
  m.impl("rnn_relu.input", TORCH_FN((one_state<Cell::kRnnRelu, kRnnReluComposite>)));
}

/// The outputs, or none where the composite would run; what python/weft/_decompositions.py asks while tracing.
Tensors try_rnn(std::string_view cell, const Tensor& input, TensorList states, TensorList params, bool has_biases,
                int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  for (Cell known : {Cell::kGru, Cell::kLstm, Cell::kRnnTanh, Cell::kRnnRelu}) {
    if (name_of(known) != cell) continue;
    return try_run(known, input, states, params, {has_biases, layers, dropout, train, bidirectional, batch_first});
  }
  user_error("weft::_try_rnn: no cell named '{}'", cell);
}

}  // namespace
}  // namespace weft::override_kernels

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def(
      "_try_rnn(str cell, Tensor input, Tensor[] states, Tensor[] params, bool has_biases, int num_layers, "
      "float dropout, bool train, bool bidirectional, bool batch_first) -> Tensor[]",
      weft::override_kernels::try_rnn);
}
TORCH_LIBRARY_IMPL(aten, CPU, m) { weft::override_kernels::register_kernels(m); }
TORCH_LIBRARY_IMPL(aten, AutogradCPU, m) { weft::override_kernels::register_kernels(m); }
// torch.vmap of a module: weft::call has a rule, PyTorch's composite fails in it where h0 is not mapped over.
TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) { weft::override_kernels::register_kernels(m); }
