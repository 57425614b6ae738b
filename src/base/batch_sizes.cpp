#include "base/batch_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

namespace weft {

std::string batch_sizes_misfit(std::span<const int64_t> batch_sizes, int64_t rows, int64_t packed) {
  int64_t sum = 0;
  bool more = false;
  for (size_t t = 0; t < batch_sizes.size(); ++t) {
    int64_t size = batch_sizes[t];
    if (size < 1) return fmt::format("packed sequences: batch_sizes[{}] is {}, but must be at least 1", t, size);
    if (t == 0 && size != rows)
      return fmt::format("packed sequences: batch_sizes begin with {}, but there are {} sequences", size, rows);
    if (t > 0 && size > batch_sizes[t - 1])
      return fmt::format("packed sequences: batch_sizes must not increase, but {} follows {} at {}", size,
                         batch_sizes[t - 1], t);
    more = more || __builtin_add_overflow(sum, size, &sum) || sum > packed;
  }
  if (more) return fmt::format("packed sequences: batch_sizes sum to more than the {} rows of data", packed);
  if (sum != packed)
    return fmt::format("packed sequences: batch_sizes sum to {}, but the data have {} rows", sum, packed);
  return "";
}

std::vector<int64_t> some_batch_sizes(int64_t length, int64_t rows, int64_t packed, uint64_t seed) {
  if (length == 0) return {};
  std::vector<int64_t> sizes(static_cast<size_t>(length), 1);
  sizes[0] = rows;
  std::mt19937_64 random(seed);
  int64_t most = rows + (length - 1) * rows;
  for (int64_t left = std::min(packed, most) - rows - (length - 1); left > 0;) {
    int64_t& size = sizes[random() % sizes.size()];
    if (size >= rows) continue;
    ++size;
    --left;
  }
  std::ranges::sort(sizes, std::greater());
  return sizes;
}

}  // namespace weft
