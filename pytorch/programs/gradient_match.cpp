#include "programs/gradient_match.h"

#include <torch/csrc/autograd/functions/basic_ops.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace weft::programs {

using record::GradientUse;

namespace {

/// Whether the nodes are of one kind of view, whose derivative depends on no values. Autograd makes such nodes again
/// for a view that is read after its base has changed in place. These operations are recorded, so a replay has the
/// nodes twice: by the operations that it calls, and by autograd's own in the replay.
bool are_of_a_view(const torch::autograd::Node& node, const torch::autograd::Node& other) {
  constexpr std::array kViews = {"Alias",  "AsStrided", "Diagonal", "Expand",     "Permute",        "Select",
                                 "Slice",  "Split",     "Squeeze",  "T",          "Transpose",      "Unbind",
                                 "Unfold", "Unsqueeze", "View",     "UnsafeView", "SplitWithSizes", "ReshapeAlias"};
  const std::string name = node.name();
  const std::string_view view = std::string_view(name).substr(0, name.find("Backward"));
  return typeid(node) == typeid(other) && std::ranges::find(kViews, view) != kViews.end();
}

}  // namespace

const GradientMatch::Edge* GradientMatch::find(const GradientUse& use) const {
  const auto found = bound_.find(use);
  return found == bound_.end() ? nullptr : &found->second.edge;
}

void GradientMatch::bind(const GradientUse& use, Edge edge, Edge behind, size_t operation) {
  bound_.insert_or_assign(use, Bound{std::move(edge), std::move(behind), operation});
}

void GradientMatch::prove() {
  std::vector<Edge> edges;
  for (const auto& [use, bound] : bound_) edges.push_back(bound.edge);
  for (const auto& each :
       record::nodes_behind(edges, [&](const Node* node) { return replay_.graph().is_source(node); }))
    is_live_[each.node.get()] = each.is_live;
  for (const auto& each : source_.graph().reached()) was_live_[each.node.get()] = each.is_live;
  for (const GradientUse& use : source_.output_uses()) {
    if (use.node <= 0) continue;
    Node* node = source_.graph().node(use.node);
    const auto found = bound_.find(use);
    const Edge replayed = found == bound_.end() ? Edge() : found->second.edge;
    compare(Edge(node->getptr(), use.output), replayed, *node);
  }
  while (!open_.empty()) {
    const auto [source, replay] = open_.back();
    open_.pop_back();
    compare(*source, *replay);
  }
}

void GradientMatch::compare(const Node& source, const Node& replay) {
  if (same_kinds_ && typeid(source) != typeid(replay)) fail(source);
  const auto &edges = source.next_edges(), &others = replay.next_edges();
  if (edges.size() != others.size()) fail(source);
  for (size_t i = 0; i < edges.size(); ++i) compare(edges[i], others[i], source);
}

void GradientMatch::compare(const Edge& source, Edge replay, const Node& reader) {
  const record::GradientGraph& graph = source_.graph();
  const bool nowhere = leads_nowhere(source);
  const auto known = replay.is_valid() ? is_live_.find(replay.function.get()) : is_live_.end();
  const bool ends = replay.is_valid() && (replay_.graph().is_source(replay.function.get()) ||
                                          record::as_error(replay.function.get()) != nullptr);
  if (nowhere != !(ends || (known != is_live_.end() && known->second))) fail(reader);
  if (nowhere) return;
  if (const auto bound = bound_.find({graph.number(source.function.get()), source.input_nr}); bound != bound_.end()) {
    const bool has_hook = !(bound->second.edge == bound->second.behind);
    if (replay == bound->second.edge) {
      replay = bound->second.behind;
    } else if (has_hook || !are_of_a_view(*source.function, *replay.function)) {
      fail(reader);
    }
  }
  if (graph.is_source(source.function.get()) || graph.is_outside(source.function.get())) {
    if (!replay.is_valid() || !replay_.graph().is_source(replay.function.get())) fail(reader);
    const int64_t input = replay_.graph().inputs().at(replay.input_nr);
    if (graph.is_source(source.function.get())) {
      if (input != graph.inputs().at(source.input_nr)) fail(reader);
    } else if (std::ranges::none_of(graph.outside_of(source), [&](size_t index) {
                 return static_cast<int64_t>(index) + source_.inputs() == input;
               })) {
      fail(reader);
    }
    return;
  }
  if (const auto* error = record::as_error(source.function.get())) {
    const auto* same = record::as_error(replay.function.get());
    if (same == nullptr || same->msg != error->msg) fail(reader);
    return;
  }
  if (source.input_nr != replay.input_nr) fail(reader);
  const std::pair<const Node*, const Node*> pair(source.function.get(), replay.function.get());
  const auto first = pairs_.lower_bound({pair.first, nullptr});
  const bool has_other = first != pairs_.end() && first->first == pair.first && !pairs_.contains(pair);
  if (has_other && !are_of_a_view(*source.function, *replay.function)) fail(*source.function);
  if (pairs_.insert(pair).second) open_.push_back(pair);
}

bool GradientMatch::leads_nowhere(const Edge& source) const {
  if (!source.is_valid()) return true;
  const record::GradientGraph& graph = source_.graph();
  if (graph.is_source(source.function.get()) || graph.is_outside(source.function.get())) return false;
  if (record::as_error(source.function.get()) != nullptr) return false;
  const auto found = was_live_.find(source.function.get());
  return found == was_live_.end() || !found->second;
}

void GradientMatch::fail(const Node& source) const {
  size_t operation = UnprovenGradientError::kNoOperation;
  const int32_t number = source_.graph().number(&source);
  for (const auto& [use, bound] : bound_)
    if (use.node == number) operation = std::min(operation, bound.operation);
  fail(source, operation);
}

void GradientMatch::fail(const Node& source, size_t operation) const {
  throw UnprovenGradientError("its gradient goes through a node (" + source.name() + ") that its operations don't give",
                              operation);
}

}  // namespace weft::programs
