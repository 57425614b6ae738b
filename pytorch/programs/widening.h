#pragma once

#include <cstddef>

namespace weft::programs {

/// Attempts to make one program for all sizes that runs of one structure differ in.
struct Attempts {
  int failed = 0, of_features = 0;

  /// Whether one more is worth its time. `is_of_features`: the sizes are rather numbers of features than of rows or
  /// steps, for which code of one number is faster; what has had several values is none.
  bool are_worth_it(bool is_of_features) {
    constexpr int kMostFailed = 2, kMostFeatures = 2;
    return failed < kMostFailed && (!is_of_features || ++of_features > kMostFeatures);
  }
};

/// Whether a size is rather a number of features: of the last dim of floats that has fewer than four dims.
inline bool is_of_features(size_t dim, size_t rank, bool is_floating) {
  return dim + 1 == rank && rank >= 2 && rank < 4 && is_floating;
}

}  // namespace weft::programs
