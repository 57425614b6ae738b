#pragma once

#include <cstdint>
#include <vector>

namespace weft::passes {

/// Chooses which values to keep, at the least cost, when the others can be recomputed from them: a minimum cut of the
/// graph of values. Among cuts of equal cost it takes the one nearest the demands, which recomputes least.
class MinCut {
 public:
  /// Adds a value and the cost of keeping it (>= 0; 0 if it is there anyway). Returns its number.
  int add(int64_t cost);
  /// Recomputing `user` needs `operand`.
  void depends(int user, int operand);
  /// The value cannot be recomputed: if it is needed, either it or the values computed from it are kept.
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
