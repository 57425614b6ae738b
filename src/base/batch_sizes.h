#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// What is wrong with the batch sizes of packed sequences, as a user's error says it: they must be at least 1, not
/// increase, begin with the number of `rows` and sum to `packed`. Empty if they fit.
std::string batch_sizes_misfit(std::span<const int64_t> batch_sizes, int64_t rows, int64_t packed);

/// Some batch sizes that fit, as different as the sizes and `seed` have it, where there are such; for tests and tools.
std::vector<int64_t> some_batch_sizes(int64_t length, int64_t rows, int64_t packed, uint64_t seed);

}  // namespace weft
