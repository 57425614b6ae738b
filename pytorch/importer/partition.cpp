#include "importer/partition.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace weft::importer {
namespace {

using Node = int64_t;
using Nodes = std::vector<Node>;
using Unit = int64_t;  // named after one of its nodes

template <typename T>
decltype(auto) at(T& items, int64_t index) {
  return items[static_cast<size_t>(index)];
}

void check_order(const DependenceGraph& graph) {
  const size_t count = graph.waits.size();
  if (graph.is_member.size() != count || graph.is_call.size() != count)
    throw std::invalid_argument("partition: waits, is_member and is_call must be of one length");
  for (size_t node = 0; node < count; ++node)
    for (Node earlier : graph.waits[node])
      if (earlier < 0 || earlier >= static_cast<Node>(node))
        throw std::invalid_argument("partition: a node must wait for nodes in front of it only");
}

class Partition {
 public:
  explicit Partition(const DependenceGraph& graph)
      : graph_(graph),
        count_(static_cast<Node>(graph.waits.size())),
        unit_(graph.waits.size()),
        has_call_(graph.is_call) {
    std::iota(unit_.begin(), unit_.end(), 0);
    rank_ = by_rank_ = unit_;
    nodes_.resize(unit_.size());
    readers_.resize(unit_.size());
    seen_.assign(unit_.size(), -1);
    for (Node node = 0; node < count_; ++node) {
      at(nodes_, node) = {node};
      for (Node earlier : at(graph.waits, node)) at(readers_, earlier).push_back(node);
    }
  }

  std::vector<Nodes> run() {
    for (Node node = 0; node < count_; ++node) {
      if (!at(graph_.is_member, node)) continue;
      Nodes earlier = at(graph_.waits, node);
      std::ranges::sort(earlier);
      for (Node other : earlier)
        if (at(graph_.is_member, other)) merge(other, node);
    }
    for (Node source = 0; source < count_; ++source) merge_readers(source);
    return units_with_calls();
  }

 private:
  /// Merges the members that read `source` with the first of them whose unit has a call.
  void merge_readers(Node source) {
    Nodes members;
    std::ranges::copy_if(at(readers_, source), std::back_inserter(members),
                         [&](Node node) { return at(graph_.is_member, node); });
    auto first = std::ranges::find_if(members, [&](Node node) { return at(has_call_, at(unit_, node)); });
    if (first == members.end()) return;
    for (Node node : members) merge(*first, node);
  }

  /// Merges two nodes' units, unless a path from one unit to the other goes through a third.
  void merge(Node a, Node b) {
    Unit first = at(unit_, a), last = at(unit_, b);
    if (first == last) return;
    if (at(rank_, first) > at(rank_, last)) std::swap(first, last);
    const bool forwards = at(nodes_, first).size() < at(nodes_, last).size();
    if (forwards ? !search(first, last, readers_) : !search(last, first, graph_.waits)) return;
    const int64_t begin = at(rank_, first), end = at(rank_, last);
    reorder(begin, end, {first, last}, unite(first, last), forwards);
  }

  /// Marks the units that `start` reaches through `edges`, among those ranked between `start` and `goal`. False if a
  /// unit other than `start` leads to `goal`. The caller passes the smaller unit as `start`, so that adding a node to a
  /// large unit costs no more than the node's own edges.
  bool search(Unit start, Unit goal, const std::vector<Nodes>& edges) {
    ++turn_;
    const auto [low, high] = std::minmax({at(rank_, start), at(rank_, goal)});
    std::vector<Unit> stack = {start};
    while (!stack.empty()) {
      const Unit unit = stack.back();
      stack.pop_back();
      for (Node node : at(nodes_, unit))
        for (Node other : at(edges, node)) {
          const Unit next = at(unit_, other);
          if (next == goal && unit != start) return false;
          if (at(rank_, next) <= low || at(rank_, next) >= high || at(seen_, next) == turn_) continue;
          at(seen_, next) = turn_;
          stack.push_back(next);
        }
    }
    return true;
  }

  /// Merges the smaller unit into the larger one. Returns the larger one.
  Unit unite(Unit a, Unit b) {
    if (at(nodes_, a).size() < at(nodes_, b).size()) std::swap(a, b);
    Nodes joining = std::exchange(at(nodes_, b), {});
    for (Node node : joining) at(unit_, node) = a;
    at(has_call_, a) = at(has_call_, a) || at(has_call_, b);
    at(nodes_, a).insert(at(nodes_, a).end(), joining.begin(), joining.end());
    return a;
  }

  /// Ranks the merged unit between the ranks of the two units. Units marked by the search stay on its side: behind the
  /// merged unit if the search went forwards, else in front. The others go to the other side.
  void reorder(int64_t begin, int64_t end, std::pair<Unit, Unit> gone, Unit merged, bool forwards) {
    std::vector<Unit> front, behind;
    for (int64_t rank = begin; rank <= end; ++rank)
      if (const Unit unit = at(by_rank_, rank); unit != kNone && unit != gone.first && unit != gone.second)
        ((at(seen_, unit) == turn_) == forwards ? behind : front).push_back(unit);
    front.push_back(merged);
    front.insert(front.end(), behind.begin(), behind.end());
    for (int64_t rank = begin; rank <= end; ++rank) {
      const auto place = static_cast<size_t>(rank - begin);
      at(by_rank_, rank) = place < front.size() ? front[place] : kNone;
      if (place < front.size()) at(rank_, front[place]) = rank;
    }
  }

  std::vector<Nodes> units_with_calls() {
    std::map<Node, Nodes> found;  // by the first node
    for (Unit unit = 0; unit < count_; ++unit) {
      Nodes& nodes = at(nodes_, unit);
      if (nodes.size() < 2 || !at(has_call_, unit)) continue;
      std::ranges::sort(nodes);
      found.emplace(nodes[0], std::move(nodes));
    }
    std::vector<Nodes> units;
    for (auto& [first, nodes] : found) units.push_back(std::move(nodes));
    return units;
  }

  static constexpr Unit kNone = -1;

  const DependenceGraph& graph_;
  const Node count_;
  std::vector<Unit> unit_;      // of each node
  std::vector<Nodes> nodes_;    // of each unit
  std::vector<bool> has_call_;  // of each unit
  std::vector<Nodes> readers_;  // of each node
  std::vector<int64_t> rank_;   // of each unit: units wait for units of lower rank
  std::vector<Unit> by_rank_;   // kNone in place of a unit that was merged into another
  std::vector<int64_t> seen_;   // by unit: the last search that marked it
  int64_t turn_ = 0;
};

}  // namespace

std::vector<std::vector<int64_t>> partition(const DependenceGraph& graph) {
  check_order(graph);
  return Partition(graph).run();
}

}  // namespace weft::importer
