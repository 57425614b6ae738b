#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::runtime {

/// Part of a count of things, first..last-1.
struct Share {
  int64_t first, last;
};

/// Share `thread` of `threads` of `count` things dealt out in blocks: all bounds but the last are multiples of `block`.
inline Share share_of(int64_t count, int64_t block, int64_t thread, int64_t threads) {
  int64_t blocks = (count + block - 1) / block;
  return {std::min(count, blocks * thread / threads * block), std::min(count, blocks * (thread + 1) / threads * block)};
}

}  // namespace weft::runtime
