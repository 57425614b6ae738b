// The Autograd kernel of weft::call. A node of our own instead of torch::autograd::Function, which functorch refuses.

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>

#include "operator/call.h"
#include "operator/program_table.h"
#include "operator/warnings.h"

namespace weft::torch_operator {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;
namespace compiled = torch::dynamo::autograd;

/// The backward for a call some of whose outputs get no gradient: without the ops that only the absent gradients reach.
/// A program with a loop is kept and gets zeros instead, since compiling it again would take long.
ProgramRef without(const ProgramRef& backward, const std::vector<bool>& absent) {
  const bool has_loop =
      std::ranges::any_of(backward->program().body.ops, [](const ir::Op& op) { return !op.regions.empty(); });
  return has_loop ? backward : backward->without_cotangents(absent);
}

/// The state of a backward besides tensors and cotangents: plain values, which can pass through Python.
struct Backward {
  ProgramRef program;
  std::vector<bool> wanted;          ///< by input
  std::vector<c10::SymInt> symbols;  ///< values of the program's symbols, for the zeros of undefined gradients

  const Derivative& derivative() const { return program->derivative(wanted); }

  /// `saved`: derivative()'s saved inputs, saved outputs and residuals if `from_residuals`, else all inputs. Returns a
  /// gradient for each input, undefined where none is wanted and where none gets to the input (GradientPaths).
  variable_list run(bool from_residuals, Tensors saved, const variable_list& gradients) const {
    const ProgramRef back = from_residuals ? derivative().backward : program->of_primals(wanted);
    size_t given = 0;
    const size_t inputs = saved.size() + program->signature().outputs().size();
    std::vector<bool> absent;   // by input of the backward; empty where every gradient has arrived
    std::vector<bool> arrived;  // by output
    const std::vector<bool>& differentiable = derivative().differentiable;
    for (size_t i = 0; i < differentiable.size(); ++i) {
      const Signature::Tensor& output = program->signature().outputs()[i];
      const bool has_gradient = differentiable[i];
      at::Tensor gradient = has_gradient ? gradients[given++] : at::Tensor();
      arrived.push_back(gradient.defined());
      if (!gradient.defined()) {
        if (has_gradient) {
          absent.resize(inputs);
          absent[saved.size()] = true;
        }
        gradient = at::zeros_symint(Signature::sizes(output, symbols), at::dtype(output.dtype));
      }
      saved.push_back(std::move(gradient));
    }
    auto results = call(absent.empty() ? back : without(back, absent), saved);
    const std::vector<bool> reached = program->gradient_paths().reached(arrived);
    variable_list by_input(wanted.size());
    for (size_t i = 0, result = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) continue;
      if (reached[i]) by_input[i] = std::move(results[result]);
      ++result;
    }
    return by_input;
  }
};

/// A node with two ways back. With GradMode off it runs the backward program, on what that needs of inputs and outputs
/// and on residuals. With GradMode on (create_graph, torch.func) it runs a program of the inputs and cotangents alone,
/// which can be differentiated again: residuals would silently count as constants there.
struct CallBackward : Node {
  Backward backward;
  std::vector<SavedVariable> inputs;  ///< all inputs: only the backward knows which it needs
  std::vector<SavedVariable> outputs, residuals;

  variable_list apply(variable_list&& gradients) override {
    variable_list results;
    {
      const WarningsWait wait;
      std::lock_guard lock(mutex_);
      results = apply_locked(gradients);
    }
    deliver_warnings();
    return results;
  }

  void release_variables() override {
    std::lock_guard lock(mutex_);
    for (auto* list : {&inputs, &outputs, &residuals}) {
      for (auto& saved : *list) saved.reset_data();
    }
  }

  std::string name() const override { return "WeftCallBackward"; }

  // Compiled autograd: the key of a graph with this node, and the node as a call in that graph. The call is opaque at
  // first, since sizes are not known yet; AOTAutograd then traces into it.

  void compiled_args(compiled::CompiledNodeArgs& args) const override {
    args.collect(backward.program->text());
    for (bool one : backward.wanted) args.collect(one);
    args.collect(backward.symbols);
    args.collect(!at::GradMode::is_enabled());
    for_each_needed(*this, !at::GradMode::is_enabled(),
                    [&](const SavedVariable& saved, bool is_output) { args.collect(saved, is_output); });
  }

  variable_list apply_with_saved(const variable_list& gradients, compiled::SwapSavedVariables& swap) override {
    const bool from_residuals = !at::GradMode::is_enabled();
    swap.before(backward.symbols);
    for_each_needed(*this, from_residuals, [&](SavedVariable& saved, bool) { swap.before(saved); });
    compiled::PackedArgs packed;
    packed.pack(backward.program->text());
    packed.pack(backward.wanted);
    packed.pack(backward.symbols);
    packed.pack(from_residuals);
    packed.pack(unpack(from_residuals));
    const std::vector<at::TypePtr> schema{
        compiled::IValuePacker<std::string>::packed_type(), compiled::IValuePacker<std::vector<bool>>::packed_type(),
        compiled::IValuePacker<std::vector<c10::SymInt>>::packed_type(), compiled::IValuePacker<bool>::packed_type(),
        compiled::IValuePacker<Tensors>::packed_type()};
    const auto& compiler = compiled::getPyCompilerInterface();
    std::string function = compiler->bind_function(swap.get_py_compiler(), name(), run_packed, schema, true, true);
    auto metadata = compiled::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
        compiled::get_input_metadata(next_edges()));
    auto results = compiler->call_function(swap.get_py_compiler(), "apply_functional", function, gradients,
                                           packed.vec(), metadata);
    for_each_needed(*this, from_residuals, [&](SavedVariable& saved, bool) { swap.after(saved); });
    swap.after(backward.symbols);
    return results;
  }

 private:
  variable_list apply_locked(const variable_list& gradients) {
    bool from_residuals = !at::GradMode::is_enabled();
    Tensors saved;
    try {
      saved = unpack(from_residuals);
    } catch (const c10::Error&) {
      // An output may have been changed in place since, as in relu_(y), which is no error with PyTorch's own kernels:
      // so recompute from the inputs. If an input was changed, unpacking it throws.
      if (!from_residuals || outputs.empty()) throw;
      from_residuals = false;
      saved = unpack(from_residuals);
    }
    return backward.run(from_residuals, std::move(saved), gradients);
  }

  static variable_list run_packed(const variable_list& gradients, const std::vector<c10::IValue>& values) {
    compiled::PackedArgs packed(values);
    Backward backward;
    backward.program = find_program(packed.unpack<std::string>());
    backward.wanted = packed.unpack<std::vector<bool>>();
    backward.symbols = packed.unpack<std::vector<c10::SymInt>>();
    bool from_residuals = packed.unpack<bool>();
    return backward.run(from_residuals, packed.unpack<Tensors>(), gradients);
  }

  /// Calls visit(saved, is_output) for the variables that Backward::run takes as `saved`, in order. Leaves out inputs
  /// that the backward doesn't read, since these may have been changed in place.
  template <typename Self, typename Visit>
  static void for_each_needed(Self& self, bool from_residuals, Visit visit) {
    if (!from_residuals) {
      for (auto& saved : self.inputs) visit(saved, false);
      return;
    }
    for (int64_t i : self.backward.derivative().saved_inputs) visit(self.inputs[i], false);
    for (auto& saved : self.outputs) visit(saved, true);
    for (auto& saved : self.residuals) visit(saved, false);
  }

  Tensors unpack(bool from_residuals) {
    auto self = c10::intrusive_ptr<Node>::reclaim_copy(this);
    Tensors tensors;
    for_each_needed(*this, from_residuals, [&](SavedVariable& saved, bool) { tensors.push_back(saved.unpack(self)); });
    return tensors;
  }
};

/// Runs a program without a derivative as usual. Its node throws the reason in the backward.
Tensors call_without_derivative(const ProgramRef& program, at::TensorList inputs, const std::string& reason) {
  auto node = c10::make_intrusive<torch::autograd::Error>(reason, torch::autograd::collect_next_edges(inputs));
  Tensors results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    results = call(program, inputs);
  }
  const auto& types = program->signature().outputs();
  for (size_t i = 0; i < types.size(); ++i) {
    if (is_floating(types[i].type.dtype)) torch::autograd::set_history(results[i], node);
  }
  return results;
}

/// Compiles the backward while the forward is compiled and runs, if PyTorch may use more threads than this one.
void compile_ahead(const CallProgram& backward) {
  if (at::get_num_threads() > 1) backward.compile_ahead();
}

Tensors call_and_record(const ProgramRef& ref, at::TensorList inputs) {
  const CallProgram& program = *ref;
  auto symbols = program.signature().bind_symbolic(inputs);  // first of all: the errors name the input
  auto node = c10::make_intrusive<CallBackward>();
  node->backward.program = ref;
  node->backward.symbols = std::move(symbols);
  node->backward.wanted.reserve(inputs.size());
  for (const at::Tensor& input : inputs) node->backward.wanted.push_back(input.requires_grad());
  const Derivative* found = nullptr;
  try {
    found = &node->backward.derivative();
  } catch (const Error& error) {
    return call_without_derivative(ref, inputs, error.what());
  }
  const Derivative& derivative = *found;
  compile_ahead(*derivative.backward);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  Tensors results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    results = call(derivative.forward ? derivative.forward : ref, inputs);
  }
  const auto& types = program.signature().outputs();
  for (size_t i = 0; i < types.size(); ++i) {
    if (derivative.differentiable[i]) torch::autograd::set_history(results[i], node);
  }
  node->inputs.reserve(inputs.size());
  node->outputs.reserve(derivative.saved_outputs.size());
  node->residuals.reserve(results.size() - types.size());
  for (const at::Tensor& input : inputs) node->inputs.emplace_back(input, false);
  for (int64_t i : derivative.saved_outputs) node->outputs.emplace_back(results[i], true);
  for (size_t i = types.size(); i < results.size(); ++i) node->residuals.emplace_back(results[i], false);
  results.resize(types.size());
  return results;
}

bool is_dual(const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); }

/// Forward mode: the program's results, with tangents from the program of passes::jvp_of_primals. Both calls are
/// differentiable again.
Tensors call_forward_mode(const ProgramRef& ref, at::TensorList inputs) {
  const CallProgram& program = *ref;
  program.signature().bind_symbolic(inputs);  // first of all: the errors name the input
  Tensors primals, tangents;
  std::vector<bool> varied;
  for (const at::Tensor& input : inputs) {
    varied.push_back(is_dual(input) && is_floating(program.signature().inputs()[varied.size()].type.dtype));
    if (varied.back()) tangents.push_back(input._fw_grad(/*level=*/0));
    primals.push_back(is_dual(input) ? input._fw_primal(/*level=*/0) : input);
  }
  Tensors results = call(ref, primals);
  primals.insert(primals.end(), tangents.begin(), tangents.end());
  Tensors derived = call(program.of_tangents(varied), primals);
  const auto& types = program.signature().outputs();
  for (size_t i = 0, next = 0; i < types.size(); ++i) {
    if (is_floating(types[i].type.dtype))
      results[i]._set_fw_grad(derived[next++], /*level=*/0, /*is_inplace_op=*/false);
  }
  return results;
}

Tensors call_autograd(std::string_view text, at::TensorList inputs) {
  if (std::any_of(inputs.begin(), inputs.end(), is_dual)) return call_forward_mode(find_program(text), inputs);
  bool differentiate = at::GradMode::is_enabled() &&
                       std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.requires_grad(); });
  if (differentiate) return call_and_record(find_program(text), inputs);
  const ProgramRef program = find_program(text);
  at::AutoDispatchBelowADInplaceOrView below;
  return call(program, inputs);
}

}  // namespace
}  // namespace weft::torch_operator

TORCH_LIBRARY_IMPL(weft, Autograd, m) { m.impl("call", weft::torch_operator::call_autograd); }
