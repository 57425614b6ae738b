#include "passes/loops/min_cut.h"

#include <algorithm>

namespace weft::passes {
namespace {

// Value i is the edge from node 2 + 2i to node 3 + 2i.
int in(int value) { return 2 + 2 * value; }
int out(int value) { return 3 + 2 * value; }

}  // namespace

void MinCut::connect(int from, int to, int64_t capacity) {
  edges_.push_back({to, capacity, first_[from]});
  first_[from] = static_cast<int>(edges_.size()) - 1;
  edges_.push_back({from, 0, first_[to]});
  first_[to] = static_cast<int>(edges_.size()) - 1;
}

int MinCut::add(int64_t cost) {
  int value = static_cast<int>(first_.size()) / 2 - 1;
  first_.resize(first_.size() + 2, -1);
  connect(in(value), out(value), cost);
  return value;
}

void MinCut::depends(int user, int operand) { connect(out(operand), in(user), kInfinite); }
void MinCut::pin(int value) { connect(kSource, in(value), kInfinite); }
void MinCut::demand(int value) { connect(out(value), kSink, kInfinite); }

/// Dinic: distances from the source over edges with capacity left.
bool MinCut::levels() {
  level_.assign(first_.size(), -1);
  level_[kSource] = 0;
  std::vector<int> queue = {kSource};
  for (size_t i = 0; i < queue.size(); ++i)
    for (int e = first_[queue[i]]; e >= 0; e = edges_[e].next)
      if (edges_[e].capacity > 0 && level_[edges_[e].to] < 0) {
        level_[edges_[e].to] = level_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
  return level_[kSink] >= 0;
}

/// Pushes flow along one path at a time, with a stack of edges: chains may be thousands of values long.
int64_t MinCut::push(int node, int64_t limit) {
  int64_t total = 0;
  std::vector<int> path;
  while (true) {
    if (node == kSink) {
      int64_t flow = limit;
      for (int e : path) flow = std::min(flow, edges_[e].capacity);
      total += flow;
      size_t keep = path.size();
      for (size_t i = path.size(); i-- > 0;) {
        edges_[path[i]].capacity -= flow;
        edges_[path[i] ^ 1].capacity += flow;
        if (edges_[path[i]].capacity == 0) keep = i;
      }
      node = keep == 0 ? kSource : edges_[path[keep - 1]].to;
      path.resize(keep);
      continue;
    }
    int& e = next_[node];
    while (e >= 0 && !(edges_[e].capacity > 0 && level_[edges_[e].to] == level_[node] + 1)) e = edges_[e].next;
    if (e >= 0) {
      path.push_back(e);
      node = edges_[e].to;
    } else if (path.empty()) {
      return total;
    } else {
      level_[node] = -1;
      node = edges_[path.back() ^ 1].to;
      path.pop_back();
    }
  }
}

std::vector<bool> MinCut::solve() {
  while (levels()) {
    next_ = first_;
    if (push(kSource, kInfinite) == 0) break;
  }
  // The sink's side: what still reaches the sink. (i ^ 1 of an edge leaving `node` is the edge entering it.)
  std::vector<bool> reaches(first_.size());
  reaches[kSink] = true;
  std::vector<int> queue = {kSink};
  for (size_t i = 0; i < queue.size(); ++i)
    for (int e = first_[queue[i]]; e >= 0; e = edges_[e].next)
      if (edges_[e ^ 1].capacity > 0 && !reaches[edges_[e].to]) {
        reaches[edges_[e].to] = true;
        queue.push_back(edges_[e].to);
      }
  std::vector<bool> kept(first_.size() / 2 - 1);
  for (size_t v = 0; v < kept.size(); ++v)
    kept[v] = reaches[static_cast<size_t>(out(static_cast<int>(v)))] &&
              !reaches[static_cast<size_t>(in(static_cast<int>(v)))];
  return kept;
}

}  // namespace weft::passes
