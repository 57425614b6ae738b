// The Autograd kernel of weft::call. A node of our own instead of torch::autograd::Function, which functorch refuses.

#include <algorithm>

#include "operator/call.h"
#include "operator/program_table.h"

namespace weft::torch_operator {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// Two ways back. With GradMode off: the backward program, from what it needs of inputs and outputs and from residuals.
/// With GradMode on (create_graph, torch.func): a program of the inputs and cotangents alone, which differentiates again;
/// residuals would count as constants there, silently.
struct CallBackward : Node {
  const CallProgram* program;
  const Derivative* derivative;
  std::vector<bool> wanted;               ///< by input
  std::vector<int64_t> gradient_of;       ///< by output: its place among the gradients, or -1 when not floating
  std::vector<c10::SymInt> symbols;       ///< of the program's dims, for the zeros of undefined gradients
  std::vector<SavedVariable> inputs;      ///< all: which are needed is known only in the backward
  std::vector<SavedVariable> outputs;     ///< derivative->saved_outputs
  std::vector<SavedVariable> residuals;

  variable_list apply(variable_list&& grads) override {
    std::lock_guard lock(mutex_);
    auto self = c10::intrusive_ptr<Node>::reclaim_copy(this);
    bool again = at::GradMode::is_enabled();
    Tensors arguments;
    if (again) {
      for (auto& saved : inputs) arguments.push_back(saved.unpack(self));
    } else {
      for (int64_t i : derivative->saved_inputs) arguments.push_back(inputs[i].unpack(self));
      for (auto& saved : outputs) arguments.push_back(saved.unpack(self));
      for (auto& saved : residuals) arguments.push_back(saved.unpack(self));
    }
    for (size_t i = 0; i < gradient_of.size(); ++i) arguments.push_back(cotangent(i, grads));
    auto results = call(again ? program->of_primals(wanted).text() : derivative->backward->text(), arguments);

    variable_list gradients(wanted.size());
    for (size_t i = 0, result = 0; i < wanted.size(); ++i) {
      if (wanted[i]) gradients[i] = std::move(results[result++]);
    }
    return gradients;
  }

  void release_variables() override {
    std::lock_guard lock(mutex_);
    for (auto* list : {&inputs, &outputs, &residuals}) {
      for (auto& saved : *list) saved.reset_data();
    }
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(program->text());
    args.collect(wanted_key());
    args.collect(symbols);
    args.collect(inputs, false);
    args.collect(outputs, true);
    args.collect(residuals, false);
  }

  variable_list apply_with_saved(const variable_list& grads, torch::dynamo::autograd::SwapSavedVariables& saved) override {
    auto swap = [&](auto step) {
      step(symbols);
      step(inputs);
      step(outputs);
      step(residuals);
    };
    swap([&](auto& values) { saved.before(values); });
    auto gradients = apply(variable_list(grads));
    swap([&](auto& values) { saved.after(values); });
    return gradients;
  }

  std::string name() const override { return "WeftCallBackward"; }

 private:
  at::Tensor cotangent(size_t output, const variable_list& grads) const {
    int64_t place = gradient_of[output];
    if (place >= 0 && grads[place].defined()) return grads[place];
    const Signature::Tensor& type = program->signature().outputs()[output];
    return at::zeros_symint(Signature::sizes(type, symbols), at::dtype(type.dtype));
  }

  std::string wanted_key() const {
    std::string key;
    for (bool one : wanted) key += one ? '1' : '0';
    return key;
  }
};

Tensors call_and_record(const CallProgram& program, at::TensorList inputs) {
  auto symbols = program.signature().bind_symbolic(inputs);  // first of all: the errors name the input
  auto node = c10::make_intrusive<CallBackward>();
  node->program = &program;
  for (const at::Tensor& input : inputs) node->wanted.push_back(input.requires_grad());
  node->derivative = &program.derivative(node->wanted);
  node->symbols = std::move(symbols);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  Tensors results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    results = call(node->derivative->forward->text(), inputs);
  }
  const auto& types = program.signature().outputs();
  int64_t differentiable = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    bool floating = is_floating(types[i].type.dtype);
    node->gradient_of.push_back(floating ? differentiable++ : -1);
    if (floating) torch::autograd::set_history(results[i], node);
  }
  for (const at::Tensor& input : inputs) node->inputs.emplace_back(input, false);
  for (int64_t i : node->derivative->saved_outputs) node->outputs.emplace_back(results[i], true);
  for (size_t i = types.size(); i < results.size(); ++i) node->residuals.emplace_back(results[i], false);
  results.resize(types.size());
  return results;
}

Tensors call_autograd(std::string_view text, at::TensorList inputs) {
  for (const at::Tensor& input : inputs) {
    TORCH_CHECK_NOT_IMPLEMENTED(!input._fw_grad(0).defined(),
                                "weft::call: forward-mode differentiation is not implemented; run the modules under "
                                "weft.disabled() to differentiate forward through PyTorch's own operators");
  }
  bool differentiate = at::GradMode::is_enabled() &&
                       std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.requires_grad(); });
  if (differentiate) return call_and_record(find_program(text), inputs);
  at::AutoDispatchBelowADInplaceOrView below;
  return call(text, inputs);
}

}  // namespace
}  // namespace weft::torch_operator

TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("call", weft::torch_operator::call_autograd); }
