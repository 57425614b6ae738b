#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/aten.h"
#include "record/record.h"
#include "record/recording_tensor.h"

namespace torch::autograd {
struct Error;
}

namespace weft::record {

using torch::autograd::Edge;
using torch::autograd::Node;

/// Where autograd sends a tensor's gradient, at the moment when an operation reads the tensor or the function returns
/// it.
struct GradientUse {
  static constexpr int32_t kNone = 0;      ///< nowhere: the tensor doesn't require a gradient
  static constexpr int32_t kOutside = -1;  ///< to a tensor from outside: this one itself
  int32_t node = kNone;                    ///< else: the number of a node of the graph, from 1 on,
  uint32_t output = 0;                     ///< and the place of the tensor among the node's outputs

  bool requires_gradient() const { return node != kNone; }
  int64_t word() const { return static_cast<int64_t>(node) << 32 | output; }
  auto operator<=>(const GradientUse&) const = default;
};

/// The node at which a recorded function's graph ends: its gradient `i` is the gradient of the i-th input that requires
/// one. In a plain call of the function the graph goes on from there, in whatever made its arguments.
struct SourceNode : Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return "WeftSource"; }
};

/// The node of a torch.autograd.Function (Recording::derived), whose backward is a recorded one.
struct DerivedNode : Node {
  /// Gives the cotangents of the inputs, undefined for inputs that are not floating.
  using Backward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs,
                                                         const std::vector<at::Tensor>& values,
                                                         const std::vector<at::Tensor>& cotangents)>;
  Backward backward;
  std::vector<torch::autograd::SavedVariable> inputs, values;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;
  std::string name() const override { return "WeftDerived"; }
};

/// A node that was reached from the given edges.
struct ReachedNode {
  c10::intrusive_ptr<Node> node;
  bool is_live;  ///< whether a gradient gets from it to a node for which `ends_at` holds
};

/// The node as the error that PyTorch puts in place of a derivative (once_differentiable); null for any other node.
const torch::autograd::Error* as_error(const Node* node);

/// The nodes behind the edges, up to the nodes for which `ends_at` holds; these are left out. Each node comes after the
/// nodes behind it.
std::vector<ReachedNode> nodes_behind(std::span<const Edge> edges, const std::function<bool(const Node*)>& ends_at);

/// The graph that autograd builds over the tensors of a recording. The recorded operations say what the function
/// computes, and this graph says what its derivative is: hooks, `detach_`, `requires_grad_` and user-defined nodes
/// change the derivative without an operation. So the graph is a part of the record, and programs::GradientMatch proves
/// that the program has its derivative.
class GradientGraph {
 public:
  /// Makes a new input require a gradient, which ends in SourceNode. `id`: the input's number as a value.
  void add_input(const at::Tensor& tensor, int64_t id);
  GradientUse use(const at::Tensor& tensor, RecordingTensor& value);
  /// Visits the nodes behind the outputs, up to inputs and to the tensors from outside as the function sees them.
  void walk(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& outside);
  /// Writes the nodes that the walk has reached into the record.
  void write(Record& record);

  const std::vector<ReachedNode>& reached() const { return reached_; }
  /// Of the source and the nodes reached so far: the nodes whose hooks a gradient passes.
  std::vector<c10::intrusive_ptr<Node>> nodes_with_hooks() const;
  /// Gives the node a number.
  int32_t add(c10::intrusive_ptr<Node> node);
  /// The node's number; 0 if it has none.
  int32_t number(const Node* node) const;
  Node* node(int32_t number) const { return nodes_.at(static_cast<size_t>(number) - 1).get(); }
  bool is_source(const Node* node) const { return node == source_.get(); }
  /// For each gradient of the source, the input's number as a value.
  const std::vector<int64_t>& inputs() const { return inputs_; }
  /// The tensors from outside whose gradient goes along this edge, by their index; empty for an edge within the
  /// function.
  std::vector<size_t> outside_of(const Edge& edge) const;
  bool is_outside(const Node* node) const { return outside_nodes_.contains(node); }
  /// The ends that a gradient of the outputs reaches: inputs by their numbers as values, tensors from outside as -1 -
  /// index.
  std::vector<int64_t> reached_ends(std::span<const GradientUse> outputs) const;
  /// Whether the node is a leaf that the function made itself. Gradients end there.
  bool is_own_leaf(const Node* node) const;
  /// The number of edges that lead to this edge's value, not counting those of the outputs themselves.
  size_t readers(const Edge& edge) const;
  /// Releases all nodes, and so the tensors that they saved.
  void clear();

 private:
  c10::intrusive_ptr<SourceNode> source_;
  std::vector<int64_t> inputs_;
  std::vector<c10::intrusive_ptr<Node>> nodes_;
  std::unordered_map<const Node*, int32_t> numbers_;
  std::vector<Edge> outside_;  ///< by tensor from outside
  std::unordered_map<const Node*, std::vector<size_t>> outside_nodes_;
  std::vector<ReachedNode> reached_;
};

}  // namespace weft::record
