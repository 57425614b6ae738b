#include "record/whole_calls.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>

#include "operator/autocast_state.h"
#include "record/recording.h"
#include "record/recording_tensor.h"

namespace weft::record {

namespace {

using at::Tensor;
using torch::autograd::variable_list;

// ---- derivatives, of a cell's inputs (x, states..., w_ih, w_hh, b_ih, b_hh)

Tensor derived_sigmoid(const Tensor& g, const Tensor& y) { return g * y * (1 - y); }
Tensor derived_tanh(const Tensor& g, const Tensor& y) { return g * (1 - y * y); }

/// The gradients of a linear layer's factors and bias.
struct OfLinear {
  Tensor input, weight, bias;
};

/// All dims but the last as one.
Tensor as_rows(const Tensor& x) { return x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2); }

OfLinear derived_linear(const Tensor& g, const Tensor& x, const Tensor& weight) {
  return {g.matmul(weight), as_rows(g).t().matmul(as_rows(x)), as_rows(g).sum(0)};
}

struct Linear {
  static const c10::OperatorHandle kOp;
  static variable_list gradients(const variable_list& in, const variable_list& given) {
    const OfLinear found = derived_linear(given[0], in[0], in[1]);
    return {found.input, found.weight, found.bias};
  }
};

struct Gru {
  static const c10::OperatorHandle kOp;

  /// As torch.nn.GRUCell documents it: r, z = sigmoid(...), n = tanh(x_n + r h_n), h' = (h - n) z + n.
  static variable_list gradients(const variable_list& in, const variable_list& given) {
    const Tensor &x = in[0], &h = in[1], &g = given[0];
    const auto from_x = at::linear(x, in[2], in[4]).chunk(3, 1), from_h = at::linear(h, in[3], in[5]).chunk(3, 1);
    const Tensor r = at::sigmoid(from_x[0] + from_h[0]), z = at::sigmoid(from_x[1] + from_h[1]);
    const Tensor n = at::tanh(from_x[2] + r * from_h[2]);
    const Tensor of_n = derived_tanh(g * (1 - z), n), of_z = derived_sigmoid(g * (h - n), z);
    const Tensor of_r = derived_sigmoid(of_n * from_h[2], r);
    const OfLinear of_x = derived_linear(at::cat({of_r, of_z, of_n}, 1), x, in[2]);
    const OfLinear of_h = derived_linear(at::cat({of_r, of_z, of_n * r}, 1), h, in[3]);
    return {of_x.input, of_h.input + g * z, of_x.weight, of_h.weight, of_x.bias, of_h.bias};
  }
};

struct Lstm {
  static const c10::OperatorHandle kOp;

  /// As torch.nn.LSTMCell documents it.
  static variable_list gradients(const variable_list& in, const variable_list& given) {
    const Tensor &x = in[0], &h = in[1], &c = in[2];
    const auto gates = (at::linear(x, in[3], in[5]) + at::linear(h, in[4], in[6])).chunk(4, 1);
    const Tensor i = at::sigmoid(gates[0]), f = at::sigmoid(gates[1]), n = at::tanh(gates[2]);
    const Tensor o = at::sigmoid(gates[3]), shown = at::tanh(f * c + i * n);
    const Tensor of_h = given[0].defined() ? given[0] : at::zeros_like(c);
    Tensor of_c = derived_tanh(of_h * o, shown);
    if (given[1].defined()) of_c = of_c + given[1];
    const Tensor of_gates = at::cat({derived_sigmoid(of_c * n, i), derived_sigmoid(of_c * c, f),
                                     derived_tanh(of_c * i, n), derived_sigmoid(of_h * shown, o)},
                                    1);
    const OfLinear of_x = derived_linear(of_gates, x, in[3]), of_state = derived_linear(of_gates, h, in[4]);
    return {of_x.input, of_state.input, of_c * f, of_x.weight, of_state.weight, of_x.bias, of_state.bias};
  }
};

variable_list derived_rnn(const variable_list& in, const Tensor& of_sum) {
  const OfLinear of_x = derived_linear(of_sum, in[0], in[2]), of_h = derived_linear(of_sum, in[1], in[3]);
  return {of_x.input, of_h.input, of_x.weight, of_h.weight, of_x.bias, of_h.bias};
}

Tensor sum_of_rnn(const variable_list& in) { return at::linear(in[0], in[2], in[4]) + at::linear(in[1], in[3], in[5]); }

struct RnnTanh {
  static const c10::OperatorHandle kOp;
  static variable_list gradients(const variable_list& in, const variable_list& given) {
    return derived_rnn(in, derived_tanh(given[0], at::tanh(sum_of_rnn(in))));
  }
};

struct RnnRelu {
  static const c10::OperatorHandle kOp;
  static variable_list gradients(const variable_list& in, const variable_list& given) {
    return derived_rnn(in, given[0] * sum_of_rnn(in).gt(0));
  }
};

// ---- autograd

template <typename Call>
struct WholeBackward : torch::autograd::Node {
  std::vector<torch::autograd::SavedVariable> inputs;

  void release_variables() override { inputs.clear(); }
  variable_list apply(variable_list&& given) override {
    TORCH_CHECK(!inputs.empty(), torch::autograd::ERR_BACKWARD_TWICE);
    auto self = c10::intrusive_ptr<Node>::reclaim_copy(this);
    variable_list unpacked;
    for (auto& input : inputs) unpacked.push_back(input.unpack(self));
    const bool is_reached = std::ranges::any_of(given, [](const Tensor& g) { return g.defined(); });
    variable_list found = is_reached ? Call::gradients(unpacked, given) : variable_list(unpacked.size());
    for (size_t i = 0; i < found.size(); ++i)
      if (!task_should_compute_output(i)) found[i] = Tensor();
    return found;
  }
};

/// The arguments, undefined where they are None.
variable_list arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  variable_list arguments;
  for (const c10::IValue& argument : torch::jit::last(stack, op.schema().arguments().size()))
    arguments.push_back(argument.isNone() ? Tensor() : argument.toTensor());
  return arguments;
}

template <typename Call>
void autograd_of(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const variable_list inputs = arguments_of(op, *stack);
  c10::intrusive_ptr<WholeBackward<Call>> node;
  if (torch::autograd::compute_requires_grad(inputs)) {
    node = c10::make_intrusive<WholeBackward<Call>>();
    node->set_next_edges(torch::autograd::collect_next_edges(inputs));
    for (const Tensor& input : inputs) node->inputs.emplace_back(input, false);
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(stack);
  }
  if (node == nullptr) return;
  for (const c10::IValue& result : torch::jit::last(*stack, op.schema().returns().size()))
    torch::autograd::set_history(result.toTensor(), node);
}

/// Each result of a cell is like h.
void meta_cell(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Tensor h = arguments_of(op, *stack)[1];
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (size_t i = 0; i < op.schema().returns().size(); ++i) stack->emplace_back(at::empty(h.sizes(), h.options()));
}

void meta_linear(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const variable_list given = arguments_of(op, *stack);
  std::vector<int64_t> sizes = given[0].sizes().vec();
  sizes.back() = given[1].size(0);
  torch::jit::drop(*stack, given.size());
  stack->emplace_back(at::empty(sizes, given[0].options()));
}

// ---- calls

bool is_plain_matrix(const Tensor& tensor, const Tensor& like, int64_t rows, int64_t columns) {
  return tensor.dim() == 2 && tensor.size(0) == rows && tensor.size(1) == columns &&
         tensor.scalar_type() == like.scalar_type();
}

/// Whether nothing changes what operations on these tensors do. An import decomposes.
bool is_undisturbed(at::TensorList tensors) {
  if (Recording::current() == nullptr || Recording::current()->is_import()) return false;
  const auto included = c10::impl::tls_local_dispatch_key_set().included_;
  if (included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) || at::autocast::is_autocast_enabled(at::kCPU))
    return false;
  return std::ranges::all_of(tensors, [](const Tensor& t) {
    return !t.defined() || ((as_recording(t) != nullptr || is_plain(t)) && !t._fw_grad(/*level=*/0).defined());
  });
}

template <typename Call>
variable_list call(at::TensorList tensors) {
  torch::jit::Stack stack;
  for (const Tensor& tensor : tensors) stack.emplace_back(tensor.defined() ? c10::IValue(tensor) : c10::IValue());
  Call::kOp.callBoxed(&stack);
  variable_list results;
  for (const c10::IValue& result : stack) results.push_back(result.toTensor());
  return results;
}

/// Whether a bias is undefined, or has this size and the dtype of `like`.
bool fits(const Tensor& bias, const Tensor& like, int64_t size) {
  return !bias.defined() || (bias.dim() == 1 && bias.size(0) == size && bias.scalar_type() == like.scalar_type());
}

template <typename Call>
std::optional<variable_list> call_cell(at::TensorList tensors, int64_t gates) {
  const Tensor &x = tensors[0], &h = tensors[1];
  if (x.dim() != 2 || h.dim() != 2 || !at::isFloatingType(x.scalar_type()) || !is_undisturbed(tensors))
    return std::nullopt;
  const int64_t rows = x.size(0), hidden = h.size(1), all = gates * hidden;
  const size_t weights = tensors.size() - 4;
  for (size_t i = 1; i < weights; ++i)
    if (!is_plain_matrix(tensors[i], x, rows, hidden) || !tensors[i].is_contiguous()) return std::nullopt;
  if (!is_plain_matrix(tensors[weights], x, all, x.size(1)) || !is_plain_matrix(tensors[weights + 1], x, all, hidden))
    return std::nullopt;
  if (!fits(tensors[weights + 2], x, all) || !fits(tensors[weights + 3], x, all)) return std::nullopt;
  return call<Call>(tensors);
}

template <typename Call>
std::optional<Tensor> call_with_one_state(at::TensorList tensors, int64_t gates) {
  const auto results = call_cell<Call>(tensors, gates);
  return results ? std::optional(results->front()) : std::nullopt;
}

}  // namespace

std::optional<Tensor> whole_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.dim() == 0 || weight.dim() != 2 || !at::isFloatingType(x.scalar_type())) return std::nullopt;
  if (!is_plain_matrix(weight, x, weight.size(0), x.size(-1)) || !fits(bias, x, weight.size(0))) return std::nullopt;
  if (!is_undisturbed({x, weight, bias})) return std::nullopt;
  return call<Linear>({x, weight, bias}).front();
}

std::optional<Tensor> whole_gru_cell(at::TensorList tensors) { return call_with_one_state<Gru>(tensors, 3); }

std::optional<std::tuple<Tensor, Tensor>> whole_lstm_cell(at::TensorList tensors) {
  const auto results = call_cell<Lstm>(tensors, 4);
  if (!results) return std::nullopt;
  return std::tuple(results->at(0), results->at(1));
}

std::optional<Tensor> whole_rnn_tanh_cell(at::TensorList tensors) { return call_with_one_state<RnnTanh>(tensors, 1); }
std::optional<Tensor> whole_rnn_relu_cell(at::TensorList tensors) { return call_with_one_state<RnnRelu>(tensors, 1); }

}  // namespace weft::record

TORCH_LIBRARY_FRAGMENT(weft, m) {
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  m.def("gru_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> Tensor");
  m.def(
      "lstm_cell(Tensor x, Tensor h, Tensor c, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> (Tensor, "
      "Tensor)");
  m.def("rnn_tanh_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> Tensor");
  m.def("rnn_relu_cell(Tensor x, Tensor h, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> Tensor");
}
namespace weft::record {
namespace {

c10::OperatorHandle operation(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

// At load (base/fork.h), behind the definitions.
const c10::OperatorHandle Linear::kOp = operation("weft::linear");
const c10::OperatorHandle Gru::kOp = operation("weft::gru_cell");
const c10::OperatorHandle Lstm::kOp = operation("weft::lstm_cell");
const c10::OperatorHandle RnnTanh::kOp = operation("weft::rnn_tanh_cell");
const c10::OperatorHandle RnnRelu::kOp = operation("weft::rnn_relu_cell");

}  // namespace
}  // namespace weft::record

TORCH_LIBRARY_IMPL(weft, Autograd, m) {
  using namespace weft::record;
  m.impl("linear", torch::CppFunction::makeFromBoxedFunction<&autograd_of<Linear>>());
  m.impl("gru_cell", torch::CppFunction::makeFromBoxedFunction<&autograd_of<Gru>>());
  m.impl("lstm_cell", torch::CppFunction::makeFromBoxedFunction<&autograd_of<Lstm>>());
  m.impl("rnn_tanh_cell", torch::CppFunction::makeFromBoxedFunction<&autograd_of<RnnTanh>>());
  m.impl("rnn_relu_cell", torch::CppFunction::makeFromBoxedFunction<&autograd_of<RnnRelu>>());
}
TORCH_LIBRARY_IMPL(weft, Meta, m) {
  m.impl("linear", torch::CppFunction::makeFromBoxedFunction<&weft::record::meta_linear>());
  for (const char* cell : {"gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"})
    m.impl(cell, torch::CppFunction::makeFromBoxedFunction<&weft::record::meta_cell>());
}
