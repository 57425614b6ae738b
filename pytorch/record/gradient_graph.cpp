#include "record/gradient_graph.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include "record/recording.h"

namespace weft::record {

using torch::autograd::variable_list;

namespace {

Edge edge_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : Edge();
}

bool has_hooks(Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() || !node.post_hooks().empty();
}

}  // namespace

variable_list SourceNode::apply(variable_list&&) {
  throw UnsupportedError("a backward that goes on behind the step, to what made its arguments");
}

variable_list DerivedNode::apply(variable_list&& gradients) {
  TORCH_CHECK(backward, "weft internal error: the derivative of a recorded function");
  std::lock_guard lock(mutex_);
  auto self = c10::intrusive_ptr<Node>::reclaim_copy(this);
  std::vector<at::Tensor> given, results;
  for (const auto& input : inputs) given.push_back(input.unpack(self));
  for (const auto& value : values) results.push_back(value.unpack(self));
  for (size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = at::zeros(results[i].sizes(), results[i].scalar_type());
  return backward(given, results, gradients);
}

void DerivedNode::release_variables() {
  std::lock_guard lock(mutex_);
  for (auto* saved : {&inputs, &values})
    for (auto& variable : *saved) variable.reset_data();
}

const torch::autograd::Error* as_error(const Node* node) { return dynamic_cast<const torch::autograd::Error*>(node); }

std::vector<ReachedNode> nodes_behind(std::span<const Edge> edges, const std::function<bool(const Node*)>& ends_at) {
  struct Visit {
    c10::intrusive_ptr<Node> node;
    size_t next = 0;
    bool is_live = false;
  };
  std::vector<ReachedNode> reached;
  std::unordered_map<const Node*, bool> live;  // true: live; false: not live, or still on the way
  std::vector<Visit> way;
  const auto enter = [&](const c10::intrusive_ptr<Node>& node) {
    if (node == nullptr) return;
    const bool ends = ends_at(node.get()) || as_error(node.get()) != nullptr;
    if (live.try_emplace(node.get(), ends).second && !ends) way.push_back({node});
  };
  for (const Edge& edge : edges) {
    enter(edge.function);
    while (!way.empty()) {
      Visit& visit = way.back();
      const auto& next = visit.node->next_edges();
      if (visit.next > 0 && next[visit.next - 1].is_valid())
        visit.is_live |= live.at(next[visit.next - 1].function.get());
      if (visit.next < next.size()) {
        const size_t place = visit.next++;
        enter(next[place].function);
        continue;
      }
      live[visit.node.get()] = visit.is_live;
      reached.push_back({std::move(visit.node), visit.is_live});
      way.pop_back();
    }
  }
  return reached;
}

void GradientGraph::add_input(const at::Tensor& tensor, int64_t id) {
  if (!source_) source_ = c10::make_intrusive<SourceNode>();
  const uint32_t place = source_->add_input_metadata(tensor);
  torch::autograd::impl::set_gradient_edge(tensor, Edge(source_, place));
  inputs_.push_back(id);
}

int32_t GradientGraph::add(c10::intrusive_ptr<Node> node) {
  const auto [known, is_new] = numbers_.try_emplace(node.get(), static_cast<int32_t>(nodes_.size()) + 1);
  if (is_new) nodes_.push_back(std::move(node));  // kept, so that no other node gets its address
  return known->second;
}

int32_t GradientGraph::number(const Node* node) const {
  const auto known = numbers_.find(node);
  return known == numbers_.end() ? 0 : known->second;
}

GradientUse GradientGraph::use(const at::Tensor& tensor, RecordingTensor& value) {
  if (!tensor.requires_grad()) return {};
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (const auto& made_by = meta->grad_fn_) {
    if (value.node != made_by.get()) value.node = made_by.get(), value.node_number = add(made_by);
    return {value.node_number, meta->output_nr_};
  }
  auto leaf = torch::autograd::impl::grad_accumulator(tensor);
  return leaf ? GradientUse{add(std::move(leaf)), 0} : GradientUse{};
}

void GradientGraph::walk(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& outside) {
  for (size_t i = outside_.size(); i < outside.size(); ++i) {
    outside_.push_back(edge_of(outside[i]));
    if (outside_[i].is_valid()) outside_nodes_[outside_[i].function.get()].push_back(i);
  }
  std::vector<Edge> edges;
  for (const at::Tensor& output : outputs) edges.push_back(edge_of(output));
  reached_ = nodes_behind(edges, [&](const Node* node) { return is_source(node) || is_outside(node); });
  for (const ReachedNode& each : reached_) add(each.node);
}

void GradientGraph::write(Record& record) {
  record.fixed(static_cast<int64_t>(reached_.size()));
  for (const ReachedNode& each : reached_) {
    const Node& node = *each.node;
    record.fixed(number(&node));
    record.fixed(reinterpret_cast<int64_t>(&typeid(node)));  // NOLINT: the type's address, as a word
    record.fixed(static_cast<int64_t>(node.next_edges().size()));
    for (const Edge& edge : node.next_edges()) {
      if (!edge.is_valid()) {
        record.fixed(0);
      } else if (is_outside(edge.function.get())) {
        record.fixed(GradientUse{GradientUse::kOutside, 0}.word());
        for (size_t index : outside_of(edge)) record.fixed(static_cast<int64_t>(index));
      } else {
        const int32_t number = is_source(edge.function.get()) ? add(edge.function) : this->number(edge.function.get());
        record.fixed(GradientUse{number, edge.input_nr}.word());
      }
    }
  }
}

std::vector<c10::intrusive_ptr<Node>> GradientGraph::nodes_with_hooks() const {
  std::vector<c10::intrusive_ptr<Node>> found;
  if (source_ && has_hooks(*source_)) found.push_back(source_);
  for (const ReachedNode& each : reached_)
    if (each.is_live && has_hooks(*each.node)) found.push_back(each.node);
  return found;
}

std::vector<size_t> GradientGraph::outside_of(const Edge& edge) const {
  std::vector<size_t> found;
  const auto known = outside_nodes_.find(edge.function.get());
  if (known == outside_nodes_.end()) return found;
  for (size_t index : known->second)
    if (outside_[index] == edge) found.push_back(index);
  return found;
}

std::vector<int64_t> GradientGraph::reached_ends(std::span<const GradientUse> outputs) const {
  std::vector<int64_t> ends;
  const auto add_end = [&](const Edge& edge) {
    if (!edge.is_valid()) return;
    if (is_source(edge.function.get())) ends.push_back(inputs_.at(edge.input_nr));
    for (size_t index : outside_of(edge)) ends.push_back(-1 - static_cast<int64_t>(index));
  };
  for (const GradientUse& use : outputs)
    if (use.node > 0) add_end(Edge(node(use.node)->getptr(), use.output));
  for (const ReachedNode& each : reached_)
    for (const Edge& edge : each.node->next_edges()) add_end(edge);
  return ends;
}

bool GradientGraph::is_own_leaf(const Node* node) const {
  return !is_outside(node) && dynamic_cast<const torch::autograd::AccumulateGrad*>(node) != nullptr;
}

size_t GradientGraph::readers(const Edge& edge) const {
  size_t count = 0;
  for (const ReachedNode& each : reached_)
    for (const Edge& next : each.node->next_edges()) count += next == edge ? 1 : 0;
  return count;
}

void GradientGraph::clear() {
  // A node may save a view whose base leads back to the node (`t = v[0]; t.mul_(2); v[1] = t * x`). Such a cycle of
  // references is never freed by itself, neither here nor in PyTorch.
  for (const auto& node : nodes_)
    if (!is_source(node.get()) && !is_outside(node.get())) node->release_variables();
  source_.reset();
  nodes_.clear();
  numbers_.clear();
  outside_.clear();
  outside_nodes_.clear();
  reached_.clear();
}

}  // namespace weft::record
