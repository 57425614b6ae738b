// The part of a recording that has to do with autograd's graph.

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <unordered_set>

#include "record/recording_internal.h"

namespace weft::record {

/// Gives the results of a torch.autograd.Function their node, for backwards within the function.
void Recording::set_history(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs,
                            DerivedNode::Backward backward) {
  const bool is_wanted = std::ranges::any_of(inputs, [](const at::Tensor& x) { return x.requires_grad(); });
  if (!at::GradMode::is_enabled() || !is_wanted || results.empty()) return;
  auto node = c10::make_intrusive<DerivedNode>();
  node->backward = std::move(backward);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(results, node);
  if (!node->backward) return;
  for (const at::Tensor& input : inputs) node->inputs.emplace_back(input, false);
  for (const at::Tensor& result : results) node->values.emplace_back(result, true);
}

at::Tensor Recording::refusing(const at::Tensor& tensor, const std::string& message) {
  at::Tensor result = derived({tensor}, {tensor}, message)[0];
  operations_.back().refuses = true;
  auto node = c10::make_intrusive<torch::autograd::Error>(message);
  torch::autograd::set_history(result, node);
  return result;
}

bool Recording::stops_gradients() const {
  return std::ranges::any_of(operations_, [](const Operation& operation) { return !operation.grad_mode; });
}

void Recording::walk(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> outside, own_outputs;
  for (size_t i = 0; i < outside_.size(); ++i) outside.push_back(shown(i));
  for (const at::Tensor& output : outputs)
    if (own(output) != nullptr) own_outputs.push_back(output);
  graph_.walk(own_outputs, outside);
}

std::vector<c10::intrusive_ptr<Node>> Recording::nodes_with_hooks(const std::vector<at::Tensor>& outputs) {
  walk(outputs);
  return graph_.nodes_with_hooks();
}

void Recording::hooked(const GradientUse& of, const std::vector<at::Tensor>& inputs, const Record& part, size_t payload,
                       bool derivable) {
  Hook hook{of, {}, payload, derivable};
  record_.fixed(kHook);
  record_.fixed(static_cast<int64_t>(derivable));
  record_.fixed(hook.of.word());
  record_.fixed(static_cast<int64_t>(inputs.size()));
  for (const at::Tensor& input : inputs) {
    hook.inputs.push_back(id(input).value());
    record_.fixed(hook.inputs.back());
  }
  record_.append(part);
  hooks_.push_back(std::move(hook));
}

void Recording::refuse_effects_on_inputs(const std::vector<at::Tensor>& outputs, std::optional<size_t> carries) const {
  // Also returned as another output: in a plain loop the next step would detach that output too, since it is the same
  // tensor.
  const auto is_returned_twice = [&](size_t carry) {
    return std::ranges::count_if(outputs, [&](const at::Tensor& t) { return t.is_same(outputs[carry]); }) > 1;
  };
  for (size_t place = 0; place < graph_.inputs().size(); ++place) {
    const auto input = static_cast<size_t>(graph_.inputs()[place]);
    if (!carries && is_changed_from(0, static_cast<int64_t>(input)))
      throw UnsupportedError("it changes an argument in place");
    const auto tensor = made_[input].lock();
    if (tensor.defined() && !tensor->requires_grad() && (!carries || (input < *carries && is_returned_twice(input))))
      throw UnsupportedError("it detaches an argument in place");
  }
}

/// Refuses hooks that act on more than the step. In a plain loop, a hook on a carry sees all gradients of that tensor,
/// including those from other uses in the step before.
void Recording::refuse_hooks_on_carries(const std::vector<at::Tensor>& outputs, std::optional<size_t> carries) const {
  for (const Hook& hook : hooks_) {
    if (!graph_.is_source(graph_.node(hook.of.node))) continue;
    const auto input = static_cast<size_t>(graph_.inputs().at(hook.of.output));
    if (!carries) throw UnsupportedError("a hook on the gradient of an argument");
    if (input >= *carries || !outputs[input].requires_grad()) continue;
    const Edge edge = torch::autograd::impl::gradient_edge(outputs[input]);
    const auto has_edge = [&](const at::Tensor& t) {
      return t.requires_grad() && torch::autograd::impl::gradient_edge(t) == edge;
    };
    if (std::ranges::count_if(outputs, has_edge) > 1 || graph_.readers(edge) > 0)
      throw UnsupportedError("a hook on the gradient of a carry that the step before has used elsewhere too");
  }
}

void Recording::refuse_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                                bool accumulates) {
  const bool asks_outside = std::ranges::any_of(
      inputs, [&](const at::Tensor& t) { return t.requires_grad() && own(t) == nullptr && !is_wrapper(t); });
  if (!asks_outside && !accumulates) return;
  std::unordered_set<const Node*> seen;
  std::vector<Edge> way;
  for (const at::Tensor& output : outputs)
    if (output.requires_grad()) way.push_back(torch::autograd::impl::gradient_edge(output));
  while (!way.empty()) {
    const Edge edge = std::move(way.back());
    way.pop_back();
    if (!edge.is_valid()) continue;
    const bool is_source = graph_.is_source(edge.function.get());
    if (is_source && asks_outside && have_history_[static_cast<size_t>(graph_.inputs().at(edge.input_nr))])
      throw UnsupportedError(
          "a gradient with respect to a tensor from outside, which goes on through what earlier steps computed");
    if (accumulates && inputs.empty()) {
      const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get());
      if (is_source || (leaf != nullptr && own(leaf->variable) == nullptr))
        throw UnsupportedError("backward(), which adds to .grad of a tensor from outside");
    }
    if (!seen.insert(edge.function.get()).second || is_source) continue;
    for (const Edge& next : edge.function->next_edges()) way.push_back(next);
  }
  if (accumulates && asks_outside) throw UnsupportedError("backward(), which adds to .grad of a tensor from outside");
}

}  // namespace weft::record
