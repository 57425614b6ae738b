#pragma once

#include <cstddef>
#include <vector>

namespace weft::passes {

/// tokens[i] == tokens[i + period] for start <= i < end - period.
struct Repetition {
  size_t start, period, end;
};

/// Finds repetitions in a sequence of tokens. The tokens behind a place are compared with those behind the next places
/// of the same token, by hashes of prefixes, in O(log n) a comparison.
class Periods {
 public:
  explicit Periods(std::vector<size_t> tokens);

  /// The repetitions that begin at a place and have at least two periods, ordered by their ends, the farthest first,
  /// then by their periods, the shortest first.
  std::vector<Repetition> at(size_t place) const;

 private:
  size_t hash(size_t from, size_t length) const;
  /// The length of the longest common sequence from two places on.
  size_t common(size_t a, size_t b) const;

  std::vector<size_t> tokens_;
  std::vector<size_t> prefix_;  ///< of the first i tokens
  std::vector<size_t> power_;
  std::vector<size_t> next_;  ///< where the token stands again
};

}  // namespace weft::passes
