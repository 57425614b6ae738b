#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/division.h"

namespace weft::runtime {

/// A range of things, first..last-1.
struct Share {
  int64_t first, last;
};

/// Share `thread` of `threads` of `count` things. All bounds but the last are multiples of `block`.
inline Share share_of(int64_t count, int64_t block, int64_t thread, int64_t threads) {
  int64_t blocks = ceil_div(count, block);
  return {std::min(count, blocks * thread / threads * block), std::min(count, blocks * (thread + 1) / threads * block)};
}

/// Share `thread` of `threads` of the rows of packed sequences, which are ordered by length, the longest first. The
/// lengths in each share add up to about the same number of steps. `batch_sizes` gives the number of rows of each step.
inline Share share_of_steps(std::span<const int64_t> batch_sizes, int64_t rows, int64_t thread, int64_t threads) {
  auto steps_before = [&](int64_t row) {
    int64_t steps = 0;
    for (int64_t size : batch_sizes) steps += std::min(size, row);
    return steps;
  };
  int64_t all = steps_before(rows);
  auto bound = [&](int64_t share) {
    int64_t wanted = all / threads * share + all % threads * share / threads;
    int64_t low = 0, high = rows;  // binary search for the first row with at least `wanted` steps before it
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (steps_before(middle) < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    bool nearer_before = low > 0 && wanted - steps_before(low - 1) < steps_before(low) - wanted;
    return nearer_before ? low - 1 : low;
  };
  return {bound(thread), thread + 1 == threads ? rows : bound(thread + 1)};
}

}  // namespace weft::runtime
