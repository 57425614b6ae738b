#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace weft::programs {

/// By symbol: its values in two runs.
using SampleSizes = std::vector<std::pair<int64_t, int64_t>>;

/// Samples that show sizes as expressions of symbols (size_fit.h), the best first, for symbols that have had these two
/// values each. The first of each pair is an odd prime, the second even, so that n // 2 shows. No two pairs have the
/// same difference, so that n + 1 fits one symbol only.
///
/// At sizes between two that it was called with, a function most likely does the same; beyond them it may index out of
/// range, or clip. Empty where there are more symbols than samples.
std::vector<SampleSizes> sample_choices(const SampleSizes& seen);

/// Samples for a function that was called with one size for each symbol so far: a small and a large one, so that a
/// threshold (x[:10], n // 8) shows. With `tells_sums` the pairs show sums and divisions, like those of
/// sample_choices(); without it they are primes, which show products. At most kMostSymbols.
SampleSizes small_samples(size_t count, bool tells_sums);
/// Samples larger than the call's own values, for functions that make sizes smaller.
SampleSizes larger_samples(const std::vector<int64_t>& at_hand);

constexpr size_t kMostSymbols = 8;

}  // namespace weft::programs
