#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/recording.h"

namespace weft::programs {

/// Thrown where the derivative of a program can't be shown to be that of the recorded function.
struct UnprovenGradientError : record::UnsupportedError {
  using record::UnsupportedError::UnsupportedError;
};

/// Compares autograd's graph of a recorded function with the graph of its replay.
///
/// The replay calls the recorded operations and nothing else, so its graph is the one whose derivative the pass vjp
/// writes. `bind` says which edge of the replay corresponds to an edge of the record. `prove` compares the nodes behind
/// these edges: the same kinds, the same edges, the same inputs and captured tensors at the ends. Nodes that lead to no
/// input and no captured tensor have no gradient, and are left out on both sides.
class GradientMatch {
 public:
  using Edge = torch::autograd::Edge;
  using Node = torch::autograd::Node;

  /// `same_kinds`: whether the replay calls the recorded operations themselves. It calls others where numbers have
  /// become tensors.
  GradientMatch(const record::Recording& source, const record::Recording& replay, bool same_kinds)
      : source_(source), replay_(replay), same_kinds_(same_kinds) {}

  /// The replay's edge for an edge of the record; null where there is none yet.
  const Edge* find(const record::GradientUse& use) const;
  /// Makes `edge` stand for an edge of the record from here on. `behind`: the same edge or, if `edge` is a hook's, the
  /// edge behind the hook. `operation`: the recorded operation that was about to read the value.
  void bind(const record::GradientUse& use, Edge edge, Edge behind, size_t operation);
  /// Throws for a node of the record that has no counterpart in the replay, when the operation reads its value.
  [[noreturn]] void fail(const Node& source, size_t operation) const;
  /// Throws UnprovenGradientError if the graphs of the function's outputs differ.
  void prove();

 private:
  struct Bound {
    Edge edge, behind;
    size_t operation;
  };

  void compare(const Node& source, const Node& replay);
  void compare(const Edge& source, Edge replay, const Node& reader);
  bool leads_nowhere(const Edge& source) const;
  [[noreturn]] void fail(const Node& source) const;

  const record::Recording& source_;
  const record::Recording& replay_;
  bool same_kinds_;
  std::map<record::GradientUse, Bound> bound_;
  std::set<std::pair<const Node*, const Node*>> pairs_;       ///< that are compared, or will be
  std::vector<std::pair<const Node*, const Node*>> open_;     ///< pairs still to be compared
  std::unordered_map<const Node*, bool> is_live_, was_live_;  ///< nodes of the replay and of the record
};

}  // namespace weft::programs
