#pragma once

#include <cstdint>
#include <vector>

namespace weft::passes {

/// Chooses the values to keep at the least cost, when others can be recomputed from those that are kept: the minimum
/// cut of the graph of values. Among cuts of one cost it takes the one nearest the demands, which recomputes least.
class MinCut {
 public:
  /// A value and what keeping it costs (>= 0; 0 for what is there anyway). Returns its number.
  int add(int64_t cost);
  /// Recomputing `user` needs `operand`.
  void depends(int user, int operand);
  /// The value cannot be recomputed: where it is needed, it is kept (or what is computed from it is).
  void pin(int value);
  /// The value is needed: it is kept or recomputed.
  void demand(int value);
  /// For each value whether it is kept. O(edges x flow paths); near-linear on the graphs at hand.
  std::vector<bool> solve();

 private:
  struct Edge {
    int to;
    int64_t capacity;
    int next;
  };
  void connect(int from, int to, int64_t capacity);
  bool levels();
  int64_t push(int node, int64_t limit);

  static constexpr int kSource = 0;
  static constexpr int kSink = 1;
  static constexpr int64_t kInfinite = int64_t{1} << 60;
  std::vector<int> first_ = {-1, -1};  ///< of a node's list of edges
  std::vector<Edge> edges_;            ///< edge i and its reverse i ^ 1
  std::vector<int> level_, next_;
};

}  // namespace weft::passes
