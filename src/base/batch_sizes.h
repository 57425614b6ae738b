#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// Checks the batch sizes of packed sequences: they must be at least 1, not increase, begin with `rows` and sum to
/// `packed`. Returns the user's error message, or nothing if they fit.
std::string batch_sizes_misfit(std::span<const int64_t> batch_sizes, int64_t rows, int64_t packed);

/// Batch sizes that fit, chosen at random by `seed`; for tests and tools.
std::vector<int64_t> some_batch_sizes(int64_t length, int64_t rows, int64_t packed, uint64_t seed);

}  // namespace weft
