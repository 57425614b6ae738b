#pragma once

#include <cstddef>

namespace weft::programs {

/// The outcomes of attempts at one program for runs of different sizes.
struct Attempts {
  int failed = 0, of_features = 0;

  /// Whether to try again. `is_of_features`: the sizes look like numbers of features. Code for a constant number of
  /// features is faster, so such a size must have had several values first.
  bool are_worth_it(bool is_of_features) {
    constexpr int kMostFailed = 2, kMostFeatures = 2;
    return failed < kMostFailed && (!is_of_features || ++of_features > kMostFeatures);
  }
};

/// Whether a size is probably a number of features: the last dim of a floating tensor with fewer than four dims.
inline bool is_of_features(size_t dim, size_t rank, bool is_floating) {
  return dim + 1 == rank && rank >= 2 && rank < 4 && is_floating;
}

}  // namespace weft::programs
